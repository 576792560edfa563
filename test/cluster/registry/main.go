// Command registry serves one image from an OCI layout, by the distribution
// protocol, to who has the password:
//
//	registry ADDR LAYOUT USER:PASSWORD
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	addr, layout, secret := os.Args[1], os.Args[2], os.Args[3]
	log.Fatal(http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		known := user+":"+password == secret
		log.Printf("%s %s user %q known %t", r.Method, r.URL.Path, user, known)
		if !known {
			w.Header().Set("Www-Authenticate", `Basic realm="registry"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		_, digest, isBlob := strings.Cut(r.URL.Path, "/blobs/")
		if !isBlob {
			_, reference, isManifest := strings.Cut(r.URL.Path, "/manifests/")
			if !isManifest {
				return // the API is here
			}
			manifest, err := manifestOf(layout)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			if digest = reference; !strings.HasPrefix(reference, "sha256:") {
				digest = manifest
			}
			if digest == manifest {
				w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			}
			w.Header().Set("Docker-Content-Digest", digest)
		}
		http.ServeFile(w, r, filepath.Join(layout, "blobs", strings.Replace(filepath.Base(digest), ":", "/", 1)))
	})))
}

func manifestOf(layout string) (string, error) {
	data, err := os.ReadFile(filepath.Join(layout, "index.json"))
	if err != nil {
		return "", err
	}
	var index struct{ Manifests []struct{ Digest string } }
	if err := json.Unmarshal(data, &index); err != nil {
		return "", err
	}
	return index.Manifests[0].Digest, nil
}
