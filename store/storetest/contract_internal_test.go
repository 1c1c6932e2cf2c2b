package storetest

import (
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// elsewhere holds the sentences with "must" that no case can check by calling
// the methods, and why.
var elsewhere = map[string]string{
	`The sentences with "must" below are the contract.`:                                                                          "it is about the others",
	`One call must be one request: no hidden retries.`:                                                                           "only a server that counts sees it; what comes of it is cited as landedIsUnknown",
	`All methods must be safe for concurrent use by multiple goroutines.`:                                                        "the race detector sees it, over the racing cases",
	`Both methods must need a bounded part of the body in memory at a time, except in a store that keeps all its objects there.`: "the stores that it is about measure it in their own tests",
	`A Condition is what must be true of the object for a Put to land.`:                                                          "a definition; what follows from it is cited as putPrecondition",
	`If the store says that a rival write was under way and nothing landed, Put must return ErrConflict.`:                        "it is about what a server says",
	`It must return it for no answer but the store's own word about this object: a 404 of a proxy, of another kind of server or about the credentials is an ErrUnavailable or an ErrRefused that shows the answer.`:      "it is about what a server says",
	`If the store refuses the request in a way that repeating it cannot change, and nothing landed, Put must return ErrDenied, ErrNoBucket, ErrInvalid or ErrRefused, whichever fits; a caller does not try again then.`: "it is about what a server says",
	`If the bucket or directory itself does not exist, Get must not say ErrNotExist: it must return ErrNoBucket, or treat the object as absent only if a Put would create the place as well.`:                            "open gives a store whose place exists",
	`A store may also refuse, with ErrInvalid, what it has no place for: a key that lies below another object's key ("a/b" where "a" is an object) or has a name that its file system or the store itself reserves.`:     "a permission; no case uses such keys",
	`CheckDeleteIf reports why a DeleteIf with these arguments is refused before anything is sent.`:                                                                                                                      "what it refuses is cited as deleteIfZero and keysChecked",
	`CheckPut reports why a Put with these arguments must be refused before anything is sent.`:                                                                                                                           "what it refuses is cited as putRefuses, putEnded and keysChecked",
}

func TestSentencesAreQuoted(t *testing.T) {
	source := contract(t)
	for _, sentence := range sentences {
		if !slices.Contains(source, sentence) {
			t.Errorf("store.go has no sentence %q", sentence)
		}
	}
	for sentence := range elsewhere {
		if !slices.Contains(source, sentence) {
			t.Errorf("store.go has no sentence %q, which is said to be checked elsewhere", sentence)
		}
	}
	must := regexp.MustCompile(`\bmust\b`)
	for _, sentence := range source {
		if must.MatchString(sentence) && !slices.Contains(sentences, sentence) && elsewhere[sentence] == "" {
			t.Errorf("no case cites %q, and nothing says why", sentence)
		}
	}
}

// contract gives the sentences of all comments of store.go.
func contract(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../store.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	links := strings.NewReplacer("[", "", "]", "")
	paragraph := regexp.MustCompile(`(?m)\n\s*\n|^\s*- `)
	var all []string
	for _, group := range file.Comments {
		for _, text := range paragraph.Split(links.Replace(group.Text()), -1) {
			text = strings.Join(strings.Fields(text), " ")
			for sentence := range strings.SplitAfterSeq(text, ". ") {
				if sentence = strings.TrimSpace(sentence); strings.HasSuffix(sentence, ".") {
					all = append(all, sentence)
				}
			}
		}
	}
	return all
}
