package userdata

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"mime/quotedprintable"
	"strconv"
	"strings"
	"testing"
)

// Whatever parts there are, encoded one way or another, come back.
func TestParseReturnsEveryPart(t *testing.T) {
	for seed := range uint64(600) {
		g := generator{Rand: rand.New(rand.NewPCG(seed, 1))}
		in := g.multipart("", 1)
		if g.IntN(2) == 0 {
			in = crlf(in)
		}
		layers := 0
		for ; layers < g.IntN(maxLayers+1); layers++ {
			switch g.IntN(3) {
			case 0:
				in = gz(in)
			case 1:
				in = b64lines(in)
			case 2:
				if layers > 0 || strings.Contains(in, "\x00") {
					in = b64(in) // UTF-16 is of text
				} else {
					in = "\xff\xfe" + utf16of(in, binary.LittleEndian)
				}
			}
		}
		parts, err := Parse([]byte(in), "ud")
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, in)
		}
		if got, want := len(parts), len(g.want); got != want {
			t.Fatalf("seed %d: %d parts, want %d\n%s", seed, got, want, show(parts))
		}
		for i, want := range g.want {
			got := parts[i]
			if got.Problem != nil || got.Index != want.Index || got.Declared != want.Declared || !bytes.Equal(got.Data, want.Data) {
				t.Fatalf("seed %d: got %s\nwant %s\n%s", seed, show(parts[i:i+1]), show(g.want[i:i+1]), in)
			}
			if exact := layers == 0 && len(got.Encodings) == 0; exact && len(got.Data) > 0 {
				at := strings.Split(strings.ReplaceAll(in, "\r\n", "\n"), "\n")[got.Line-1]
				if first, _, _ := strings.Cut(string(got.Data), "\n"); at != first {
					t.Fatalf("seed %d: line %d is %q, want %q", seed, got.Line, at, first)
				}
			}
		}
	}
}

type generator struct {
	*rand.Rand
	want []Part
	n    int
}

func (g *generator) multipart(index string, depth int) string {
	g.n++
	boundary := fmt.Sprintf("==%d==", g.n)
	if g.IntN(4) == 0 {
		boundary = "//" + strconv.Itoa(g.n)
	}
	var parts []string
	for i := range 1 + g.IntN(4) {
		sub := index + strconv.Itoa(i+1)
		if depth < 3 && g.IntN(5) == 0 {
			parts = append(parts, strings.TrimPrefix(g.multipart(sub+".", depth+1), "MIME-Version: 1.0\n"))
			continue
		}
		parts = append(parts, g.part(sub))
	}
	return message(boundary, parts...)
}

func (g *generator) part(index string) string {
	data := g.text()
	declared := []string{"text/plain", "text/x-shellscript", "application/node.eks.aws", ""}[g.IntN(4)]
	g.want = append(g.want, Part{Index: index, Declared: declared, Data: []byte(data)})
	header := ""
	if declared != "" {
		header = "Content-Type: " + declared + "\n"
	}
	if g.IntN(5) == 0 {
		data = gz(data)
		return header + "Content-Transfer-Encoding: base64\n\n" + b64lines(data)
	}
	switch g.IntN(4) {
	case 0:
		return header + "Content-Transfer-Encoding: base64\n\n" + b64lines(data)
	case 1:
		var out bytes.Buffer
		w := quotedprintable.NewWriter(&out)
		w.Write([]byte(data))
		w.Close()
		// A line of dashes must not look like a boundary, so writers quote it.
		return header + "Content-Transfer-Encoding: quoted-printable\n\n" + strings.NewReplacer("--", "=2D=2D", "\r\n", "\n").Replace(out.String())
	case 2:
		if header == "" {
			header = "X-Part: yes\n"
		}
		return header + "\n" + b64(data)
	}
	return header + "\n" + data
}

// text is recognisable by its first line; below is anything.
func (g *generator) text() string {
	lines := []string{[]string{"#!/bin/sh", "#cloud-config", "kind: x", `{"a": 1,`, "---\nkind: x"}[g.IntN(5)]}
	for range g.IntN(8) {
		lines = append(lines, []string{"", "--", "---", "-----BEGIN X-----", "ä ö 𝄞", "a = b", "test", "  trailing  ", "Content-Type: text/plain", strings.Repeat("long ", 40)}[g.IntN(10)])
	}
	if lines[0][0] == '{' {
		lines = append(lines, "}")
	}
	return strings.Join(lines, "\n") + "\n"
}
