package shard

import (
	"fmt"
	"strings"
	"testing"
)

// TestWaits: a coordinator waits for more newcomers as long as some come and nobody goes,
// for three looks. No test noticed most changes of that: a plan that is written too early
// only moves shards twice, and one that is written late leaves those of who has gone alone.
func TestWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		plan string // the sessions in the plan that is there; "-": there is none
		look []string
		want string // for each look: w it waits, . it does not
	}{
		{"a fleet starts", "-", []string{"a", "ab", "abc", "abc"}, "www."},
		{"a fleet starts at once", "-", []string{"abc", "abc"}, "w."},
		{"a fleet that never ends to come", "-", []string{"a", "ab", "abc", "abcd", "abcde", "abcdef"}, "www.ww"},
		{"nothing changes", "ab", []string{"ab", "ab"}, ".."},
		{"nobody is there", "-", []string{"", "a", "a"}, ".w."},
		{"one comes to a fleet", "ab", []string{"abc", "abc"}, "w."},
		{"one comes later", "ab", []string{"ab", "abc", "abc"}, ".w."},
		{"one goes", "abc", []string{"ab", "ab"}, ".."},
		{"one goes while another comes", "abc", []string{"abd", "abd"}, ".."},
		{"one goes while others come for a while", "abc", []string{"abcd", "abde", "abde"}, "w.."},
		{"one stays, one goes and another comes", "ab", []string{"ac", "ac"}, ".."},
		{"all go and others come", "abc", []string{"d", "de", "def", "def"}, "www."},
		{"all go", "abc", []string{"", ""}, ".."},
		{"the wait begins anew after it has ended", "a", []string{"ab", "abc", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh"}, "ww.www.w"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := new(coordinator)
			if c.plan != "-" {
				k.plan = new(wirePlan)
				for _, session := range strings.Split(c.plan, "") {
					k.plan.Workers = append(k.plan.Workers, Member{Session: session})
				}
			}
			got := ""
			for _, look := range c.look {
				var living []*member
				for _, session := range strings.Split(look, "") {
					living = append(living, &member{session: session})
				}
				got += map[bool]string{true: "w", false: "."}[k.waits(living)]
			}
			if got != c.want {
				t.Errorf("%s gives %s, want %s", fmt.Sprint(c.look), got, c.want)
			}
		})
	}
}
