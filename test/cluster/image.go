package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
)

// layout is an image with one static program, made from nothing: the files of
// an OCI layout by their paths. Its name is what containerd calls it on import.
func layout(name string, program []byte) map[string][]byte {
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	blob := func(mediaType string, data []byte) map[string]any {
		digest := fmt.Sprintf("%x", sha256.Sum256(data))
		files["blobs/sha256/"+digest] = data
		return map[string]any{"mediaType": mediaType, "digest": "sha256:" + digest, "size": len(data)}
	}
	layer := archive(map[string][]byte{"pause": program})
	layerBlob := blob("application/vnd.oci.image.layer.v1.tar", layer)
	config := blob("application/vnd.oci.image.config.v1+json", encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/pause"}, "Labels": map[string]string{"name": name}}, // no two are the same
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{layerBlob["digest"]}},
	}))
	manifest := blob("application/vnd.oci.image.manifest.v1+json", encode(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []any{layerBlob},
	}))
	manifest["annotations"] = map[string]string{"io.containerd.image.name": name}
	manifest["platform"] = map[string]string{"architecture": runtime.GOARCH, "os": "linux"}
	files["index.json"] = encode(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})
	return files
}

// archive is a tar file with executable files.
func archive(files map[string][]byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			panic(err) // into memory
		}
		w.Write(data)
	}
	w.Close()
	return b.Bytes()
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps and strings
	}
	return data
}
