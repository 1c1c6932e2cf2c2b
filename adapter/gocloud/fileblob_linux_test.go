package gocloud_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
)

// TestFileblobLosesCreates: why New refuses fileblob. Two writers create one object, and both
// are told that they did. Once this test fails, fileblob may be worth another look.
func TestFileblobLosesCreates(t *testing.T) {
	dir := t.TempDir()
	create := func(opts *fileblob.Options, metadata string) error {
		bucket, err := fileblob.OpenBucket(dir, opts)
		if err != nil {
			return err
		}
		defer bucket.Close()
		return bucket.WriteAll(t.Context(), "k", []byte("body"), &blob.WriterOptions{
			IfNotExist: true, Metadata: map[string]string{"m": metadata},
		})
	}
	// Between its look and its rename a writer writes the metadata. These are more than fit into
	// a pipe, so the first writer stays there until somebody reads.
	attrs := filepath.Join(dir, "k.attrs")
	if err := syscall.Mkfifo(attrs, 0o600); err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() {
		err := create(nil, strings.Repeat("x", 1<<20))
		if f, open := os.OpenFile(attrs, os.O_RDWR, 0); open == nil {
			f.Close() // should it not have written there, nobody waits for it
		}
		first <- err
	}()
	pipe, err := os.Open(attrs) // which waits for the first writer
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if err = create(&fileblob.Options{Metadata: fileblob.MetadataDontWrite}, ""); err != nil {
		t.Errorf("the second writer: %v", err)
	}
	if _, err = io.Copy(io.Discard, pipe); err != nil {
		t.Error(err)
	}
	if err = <-first; err != nil {
		t.Errorf("the first writer: %v", err)
	}
}
