package peer

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

const held = `{"lock":"leaders/x","token":42,"state":"held","holder":"web-1","address":"10.0.1.42:8443","ttl_ms":15000,` +
	`"valid_ms":13740,"incarnation":"0f9c","version":"42 leading","meta":{"k":"v"},` +
	`"acquired_at":"2026-11-20T10:30:45.000Z","renewed_at":"2026-11-20T10:31:00.000Z"}`

// seeds are an answer for each rule of check, and how it begins to go wrong.
var seeds = map[string]string{ // by what is said of it; "" is for those that are well
	held: "",
	strings.Replace(held, `"lock"`, `"more":[{}],"leaderID":"web-1","lock"`, 1):                                                  "",
	`{"lock":"leaders/x","token":0,"state":"none","ttl_ms":0,"valid_ms":0,"version":"none"}`:                                     "",
	`{"lock":"x","token":7,"state":"free","holder":"a","ttl_ms":1,"valid_ms":0,"incarnation":"i","version":"v","successor":"b"}`: "",
	`{"lock":"x","token":9223372036854775806,"state":"unsure","holder":"a","ttl_ms":86400000,"incarnation":"i","version":"v"}`:   "",

	strings.Replace(held, `13740`, `15000`, 1):                       "",
	strings.Replace(held, `42 leading`, strings.Repeat("v", 256), 1): "",
	`{"lock":"x","token":7,"state":"free","holder":"a","ttl_ms":1,"incarnation":"i","version":"v","record":"` + strings.Repeat("x", 16<<10) + `","object_version":"` + strings.Repeat("v", 256) + `"}`: "",

	`{"lock":"leaders/x","state":"none","version":"none","token":1}`:         `in the state "none"`,
	`{"lock":"leaders/x","state":"none","version":"none","ttl_ms":1}`:        `in the state "none"`,
	`{"lock":"leaders/x","state":"none","version":"none","valid_ms":1}`:      `in the state "none"`,
	`{"lock":"leaders/x","state":"none","version":"none","holder":"a"}`:      `in the state "none"`,
	`{"lock":"leaders/x","state":"none","version":"none","incarnation":"i"}`: `in the state "none"`,
	`{"lock":"leaders/x","state":"none","version":"none","successor":"b"}`:   `in the state "none"`,

	``:               "not the JSON",
	`null`:           "names no lock",
	`{}`:             "names no lock",
	`[` + held + `]`: "not the JSON",
	`"held"`:         "not the JSON",
	held[:40]:        "not the JSON",
	held + held:      "not the JSON",
	strings.Replace(held, "web-1", "web-\xff", 1):                     "not UTF-8",
	strings.Replace(held, `"leaders/x"`, `""`, 1):                     "names no lock",
	strings.Replace(held, `"leaders/x"`, `7`, 1):                      "not the JSON",
	strings.Replace(held, `42,`, `0,`, 1):                             "", // its layout has none
	strings.Replace(held, `42,`, `-1,`, 1):                            "token -1 is not between 0 and 9223372036854775806",
	strings.Replace(held, `42,`, `9223372036854775807,`, 1):           "token 9223372036854775807",
	strings.Replace(held, `42,`, `9223372036854775808,`, 1):           "not the JSON",
	strings.Replace(held, `42,`, `4.2,`, 1):                           "not the JSON",
	strings.Replace(held, `"held"`, `"leading"`, 1):                   `state "leading"`,
	strings.Replace(held, `"held"`, `"none"`, 1):                      `in the state "none"`,
	strings.Replace(held, `"held"`, `"free"`, 1):                      `valid_ms is 13740 in the state "free"`,
	strings.Replace(held, `"web-1"`, `""`, 1):                         "holder or incarnation",
	strings.Replace(held, `"0f9c"`, `""`, 1):                          "holder or incarnation",
	strings.Replace(held, `15000`, `0`, 1):                            "ttl_ms 0",
	strings.Replace(held, `15000`, `86400001`, 1):                     "ttl_ms 86400001",
	strings.Replace(held, `13740`, `15001`, 1):                        "valid_ms 15001",
	strings.Replace(held, `13740`, `-1`, 1):                           "valid_ms -1",
	strings.Replace(held, `13740`, `0`, 1):                            `valid_ms is 0 in the state "held"`,
	strings.Replace(held, `"42 leading"`, `""`, 1):                    "version has 0 bytes",
	strings.Replace(held, `42 leading`, strings.Repeat("v", 257), 1):  "version has 257 bytes",
	strings.Replace(held, `"meta"`, `"successor":"b","meta"`, 1):      "tells of a release",
	strings.Replace(held, `"meta"`, `"record":"{}","meta"`, 1):        "tells of a release",
	strings.Replace(held, `"meta"`, `"object_version":"v","meta"`, 1): "tells of a release",
	`{"lock":"x","token":7,"state":"free","holder":"a","ttl_ms":1,"incarnation":"i","version":"v","record":"` + strings.Repeat("x", 16<<10+1) + `"}`:    "its record has 16385 bytes",
	`{"lock":"x","token":7,"state":"free","holder":"a","ttl_ms":1,"incarnation":"i","version":"v","object_version":"` + strings.Repeat("v", 257) + `"}`: "its object_version 257",
	strings.Replace(held, `2026-11-20T10:30:45.000Z`, `yesterday`, 1):                                                                                   "acquired_at",
	strings.Replace(held, `2026-11-20T10:31:00.000Z`, `1763634660`, 1):                                                                                  "renewed_at",
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for body, want := range seeds {
		switch said, err := decode([]byte(body)); {
		case want == "" && err != nil:
			t.Errorf("%s\nis refused: %v", body, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s\nis not refused with %q, but: %v", body, want, err)
		case err != nil && !reflect.ValueOf(said).IsZero():
			t.Errorf("%s\ngives %+v and the error %v", body, said, err)
		}
	}
}

// What AnswerOf writes, decode reads back.
func TestAnswersComeBack(t *testing.T) {
	t.Parallel()
	lease := Leadership{
		Lock: "leaders/x", Token: 42, Holder: "web-1", Address: "[::1]:8443", Meta: map[string]string{"k": "<v>"},
		Incarnation: "0f9c", TTL: 15 * time.Second, Version: "42 leading",
		AcquiredAt: time.UnixMilli(1763634660123).UTC(), RenewedAt: time.UnixMilli(1763634665456).UTC(),
	}
	leading, free := lease, lease
	leading.Leading, leading.Remaining = true, 13*time.Second
	free.Free, free.Successor = true, "web-2"
	free.Record, free.Object = []byte("{}"), "v7"
	for _, said := range []Leadership{lease, leading, free, {Lock: "leaders/x", Version: "none"}} {
		body, err := json.Marshal(AnswerOf(said))
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decode(body); err != nil || !reflect.DeepEqual(back, said) {
			t.Errorf("%+v\ncame back as\n%+v: %v\n%s", said, back, err, body)
		}
	}
	last := leading
	if last.Remaining = time.Millisecond; AnswerOf(last).State != StateHeld {
		t.Errorf("with a millisecond left it says %+v", AnswerOf(last))
	}
	last.Remaining = time.Millisecond - 1
	if a := AnswerOf(last); a.State != StateUnsure || a.Valid != 0 {
		t.Errorf("with less than a millisecond left it says %+v", a)
	}
	lost := leading
	if lost.Leading = false; AnswerOf(lost).State != StateUnsure {
		t.Errorf("of a lease that has not run out, and does not lead, it says %+v", AnswerOf(lost))
	}
	for size, want := range map[int]int{maxProof: maxProof, maxProof + 1: 0} {
		free.Record = make([]byte, size)
		if a := AnswerOf(free); len(a.Record) != want || (a.Object == "") != (want == 0) {
			t.Errorf("of a record of %d bytes it sends %d, and the version %q", size, len(a.Record), a.Object)
		}
	}
}
