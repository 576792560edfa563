package nodeadm

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/layout"
)

// UserData is the source that stands for the instance's own user data.
const UserData = "imds://user-data"

// DefaultSources are read where none is named: user data, and over it the
// drop-in documents of the node.
var defaultSources = []string{UserData, "file://" + layout.DropInDir}

// ReadSources reads documents from where uris say: imds://user-data, file://
// with a file or a directory (its *.yaml, *.yml and *.json in lexical order),
// or - for standard input. Without uris the defaults are read. A default that
// is not there is passed over; one that somebody named must be there.
func ReadSources(ctx context.Context, uris []string, root rootfs.Root, metadata *imds.Client, stdin io.Reader) ([]config.Source, error) {
	named := len(uris) > 0
	if !named {
		uris = defaultSources
	}
	var sources []config.Source
	var errs []error
	for _, uri := range uris {
		found, err := readSource(ctx, uri, root, metadata, stdin, named)
		sources, errs = append(sources, found...), append(errs, err)
	}
	return sources, errors.Join(errs...)
}

func readSource(ctx context.Context, uri string, root rootfs.Root, metadata *imds.Client, stdin io.Reader, named bool) ([]config.Source, error) {
	scheme, rest, _ := strings.Cut(uri, "://")
	switch {
	case uri == "-":
		data, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fault.New(fault.Disk, "", "standard input: %w", err)
		}
		return []config.Source{{Name: "standard input", Data: data}}, nil
	case scheme == "imds":
		var data string
		err := metadata.Lookup(ctx, "user-data", func(body string) error { data = body; return nil })
		if errors.Is(err, imds.ErrAbsent) {
			return nil, nil
		}
		return []config.Source{{Name: "user data", Data: []byte(data)}}, err
	case scheme == "file":
		return readFiles(rest, root, named)
	}
	return nil, fault.New(fault.Usage, "write imds://user-data, file:///PATH, or - for standard input", "-c %s: no such kind of source", uri)
}

// readFiles reads a file, or the documents of a directory. A path that
// somebody named is one of this machine; the default is one of the node.
func readFiles(path string, root rootfs.Root, named bool) ([]config.Source, error) {
	host, err := path, error(nil)
	if !named {
		if host, err = root.Resolve(path, true); err != nil {
			return nil, fault.New(fault.Disk, "", "%s: %w", path, err)
		}
	}
	info, err := os.Stat(host)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, fault.New(fault.Usage, "name a file or directory that exists", "-c file://%s: %w", path, err)
	}
	if !info.IsDir() {
		data, err := os.ReadFile(host)
		if err != nil {
			return nil, fault.New(fault.Disk, "", "%w", err)
		}
		return []config.Source{{Name: path, Data: data}}, nil
	}
	entries, err := os.ReadDir(host) // in lexical order
	if err != nil {
		return nil, fault.New(fault.Disk, "", "%w", err)
	}
	var sources []config.Source
	for _, e := range entries {
		if e.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(e.Name()))) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(host, e.Name()))
		if err != nil {
			return nil, fault.New(fault.Disk, "", "%w", err)
		}
		sources = append(sources, config.Source{Name: filepath.Join(path, e.Name()), Data: data})
	}
	return sources, nil
}
