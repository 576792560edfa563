package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/doctree"
)

// readsBack makes sure that a document that is written out means the same.
func readsBack(t *testing.T, tree *doctree.Node) {
	t.Helper()
	want, err := Resolve(tree)
	if err != nil {
		return
	}
	text, err := tree.YAML()
	if err != nil {
		t.Fatal(err)
	}
	documents, got, err := Read([]Source{{Name: "written", Data: text}}, ReadOptions{})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if diff := cmp.Diff(tree.Value(), documents.Tree.Value()); diff != "" {
		t.Fatalf("%s\n%s", diff, text)
	}
	if diff := cmp.Diff(want, got, sameConfig); diff != "" {
		t.Fatalf("%s\n%s", diff, text)
	}
}

// FuzzRead: any bytes may be user data. They are read or refused, and what is
// read can be written.
func FuzzRead(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, o := range []ReadOptions{{}, {Lenient: true}, {Scripts: true}} {
			documents, _, err := Read([]Source{{Name: "user data", Data: data}}, o)
			if err == nil && len(documents.Parts) == 0 {
				t.Error("there are no parts, and no error")
			}
			if err == nil && documents.Tree != nil {
				readsBack(t, documents.Tree)
			}
		}
	})
}

// FuzzConvert: the same for everything that can be converted.
func FuzzConvert(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, _, err := Convertible(data, "user data")
		if err != nil {
			return
		}
		if tree == nil {
			t.Fatal("there is no document, and no error")
		}
		readsBack(t, tree)
		args, _ := ToBootstrap(tree)
		for _, arg := range args {
			if words, err := SplitWords(QuoteWord(arg)); err != nil || len(words) != 1 || words[0] != arg {
				t.Errorf("%q comes back as %q: %v", arg, words, err)
			}
		}
	})
}
