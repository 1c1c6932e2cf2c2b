package storetest

import (
	"runtime"
	"strings"

	"github.com/leasehold/leasehold/store"
)

// unlikeWindows are characters that no file name on Windows can have.
const unlikeWindows = `<>:"|?*`

func oddKeys(p *trial) {
	keys := []string{
		"k",
		"with space", "plus+plus", "percent%41", "percent%", "hash#hash", "amp&amp", "equals=equals",
		"semi;colon", "comma,comma", "at@at", "dollar$", "bang!", "tilde~", "quote'quote", "(round)", "[square]", "{curly}", "caret^", "tick`",
		"dots..inside", "three...dots", ".hidden", "a/.hidden/b", "-dash", "_under",
		"ünïcödé/ключ/锁/🔒", "combining e\u0301",
		"deep/er/and/deep/er/still/1/2/3",
		strings.Repeat("s", 200),
		longestKey(),
	}
	for _, c := range unlikeWindows {
		keys = append(keys, "odd/a"+string(c)+"b")
	}
	for _, key := range keys {
		body := []byte("the body of " + key)
		o, err := p.put(p.ctx, key, body, store.IfAbsent())
		if err != nil {
			if runtime.GOOS == "windows" && strings.ContainsAny(key, unlikeWindows) && isAny(err, store.ErrInvalid) {
				continue
			}
			p.report(keysKept, "put %q said: %v", key, err)
			continue
		}
		p.unchanged(o, body, keysKept, "a create")
		if found := p.entries(key, ""); len(found) != 1 || found[0].Key != key {
			p.report(keysKept, "the listing of %q has %+v", key, found)
		}
		p.update(key, append(body, " again"...), o.Version)
		if err := p.delete(p.ctx, key); err != nil {
			p.report(keysKept, "delete %q said: %v", key, err)
		}
		p.absent(key, deleteRemoves, "a delete")
	}
}

func longestKey() string {
	segment := strings.Repeat("x", 127) + "/"
	return strings.Repeat(segment, store.MaxKey/len(segment))[:store.MaxKey-1] + "y"
}

var notKeys = []string{
	"", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "../a", "a/../b", "a/..",
	`a\b`, "a\x00b", "a\nb", "a\x7fb", "a\u0085b", "a\xffb",
	strings.Repeat("s", 201), longestKey() + "z",
}

func invalidKeys(p *trial) {
	for _, key := range notKeys {
		_, err := p.put(p.ctx, key, []byte("body"), store.IfAbsent())
		p.refused(err, keysChecked, "put of a key that CheckKey refuses", store.ErrInvalid)
		_, err = p.read(p.ctx, key, "")
		p.refused(err, keysChecked, "get of a key that CheckKey refuses", store.ErrInvalid)
		err = p.delete(p.ctx, key)
		p.refused(err, keysChecked, "delete of a key that CheckKey refuses", store.ErrInvalid)
	}
	for _, e := range p.entries("", "") {
		p.report(keysChecked, "after puts of invalid keys there is %q", e.Key)
	}
}
