package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"time"
)

// The part of CycloneDX 1.6 that a Go binary needs. A serial number, which
// would have to be random, is left out: the format does not ask for one.
type (
	bom struct {
		Format       string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		Version      int          `json:"version"`
		Metadata     bomMetadata  `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	bomMetadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Ref        string     `json:"bom-ref"`
		Type       string     `json:"type"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		Hashes     []hash     `json:"hashes,omitempty"`
		PURL       string     `json:"purl"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn,omitempty"`
	}
)

// sbom lists what is in the binary: the binary itself by its hash, the modules
// by version and checksum as in go.sum, and which needs which.
func (p *program) sbom(version string, date time.Time) ([]byte, error) {
	content, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)

	main := component{
		Type: "application", Name: p.info.Main.Path, Version: version,
		Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
	}
	for _, s := range p.info.Settings {
		main.Properties = append(main.Properties, property{"go.build:" + s.Key, s.Value})
	}
	all := []component{main, {Type: "library", Name: standard, Version: strings.TrimPrefix(p.info.GoVersion, "go")}}
	for _, m := range p.info.Deps {
		all = append(all, component{
			Type: "library", Name: m.Path, Version: m.Version,
			Properties: []property{{"go.sum", m.Sum}},
		})
	}
	refs := map[string]string{}
	for i := range all {
		c := &all[i]
		// Package URLs of Go are in lower case, and a + has another meaning there.
		c.PURL = "pkg:golang/" + strings.ToLower(c.Name) + "@" + strings.ReplaceAll(c.Version, "+", "%2B")
		c.Ref = c.PURL
		refs[c.Name] = c.Ref
	}
	out := bom{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata:   bomMetadata{date.UTC().Format(time.RFC3339), all[0]},
		Components: all[1:],
	}
	for _, c := range all {
		d := dependency{Ref: c.Ref}
		for _, name := range p.requires[c.Name] {
			d.DependsOn = append(d.DependsOn, refs[name])
		}
		out.Dependencies = append(out.Dependencies, d)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	err = enc.Encode(out)
	return b.Bytes(), err
}
