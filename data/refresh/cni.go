package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// The Amazon VPC CNI carries its own table of instance types, which its
// maintainers make from many regions.
const (
	cniModule  = "github.com/aws/amazon-vpc-cni-k8s"
	cniVersion = "v1.23.2"
	cniFile    = "pkg/vpc/vpc_ip_resource_limit.go"
)

// fromCNI reads the table out of the source of the module. Imported, the package
// only answers for a type that one can already name; and it would bring the
// controller's dependencies along.
func fromCNI(ctx context.Context, version string) ([]row, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", cniModule+"@"+version)
	// Nothing of this module has a say in which version that is.
	cmd.Dir = os.TempDir()
	text, err := cmd.Output()
	var module struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(text, &module); jsonErr != nil {
		return nil, fmt.Errorf("go mod download %s@%s: %w", cniModule, version, errors.Join(err, jsonErr))
	}
	if module.Error != "" {
		return nil, errors.New(module.Error)
	}
	return parseCNI(filepath.Join(module.Dir, cniFile), nil)
}

// parseCNI reads the map literal instanceNetworkingLimits of a Go file.
func parseCNI(path string, src any) ([]row, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.VAR {
			continue
		}
		for _, spec := range gen.Specs {
			v := spec.(*ast.ValueSpec)
			if v.Names[0].Name != "instanceNetworkingLimits" || len(v.Values) != 1 {
				continue
			}
			entries, ok := v.Values[0].(*ast.CompositeLit)
			if !ok {
				continue
			}
			for _, e := range entries.Elts {
				r, err := cniRow(e)
				if err != nil {
					return nil, fmt.Errorf("%s: %s: %w", path, r.name, err)
				}
				rows = append(rows, r)
			}
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: instanceNetworkingLimits is not there, or is empty", path)
	}
	return rows, nil
}

func cniRow(e ast.Expr) (row, error) {
	entry, ok := e.(*ast.KeyValueExpr)
	if !ok {
		return row{}, errors.New("an entry without a key")
	}
	r := row{name: literal(entry.Key)}
	fields := fieldsOf(entry.Value)
	r.ips = integer(fields["IPv4Limit"])
	r.hypervisor = literal(fields["HypervisorType"])
	if r.hypervisor == "unknown" {
		r.hypervisor = ""
	}
	r.metal = literal(fields["IsBareMetal"]) == "true"

	index := integer(fields["DefaultNetworkCardIndex"])
	if cards, ok := fields["NetworkCards"].(*ast.CompositeLit); ok {
		for _, c := range cards.Elts {
			card := fieldsOf(c)
			r.cards++
			if integer(card["NetworkCardIndex"]) == index {
				r.enis = integer(card["MaximumNetworkInterfaces"])
			}
		}
	}
	if r.cards == 0 {
		// A type of which the CNI has no cards has one.
		r.cards, r.enis = 1, integer(fields["ENILimit"])
	}
	if r.name == "" || r.enis <= 0 || r.ips <= 0 {
		return r, errors.New("the limits of the default network card cannot be read")
	}
	return r, nil
}

func fieldsOf(e ast.Expr) map[string]ast.Expr {
	fields := make(map[string]ast.Expr)
	if lit, ok := e.(*ast.CompositeLit); ok {
		for _, elt := range lit.Elts {
			if kv, ok := elt.(*ast.KeyValueExpr); ok {
				fields[literal(kv.Key)] = kv.Value
			}
		}
	}
	return fields
}

// literal gives the text of a string, a number or a name, and "" for all else.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, _ := strconv.Unquote(e.Value)
			return s
		}
		return e.Value
	}
	return ""
}

func integer(e ast.Expr) int {
	n, _ := strconv.Atoi(literal(e))
	return n
}
