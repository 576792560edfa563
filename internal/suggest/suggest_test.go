package suggest

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"apiserver-endpoint", "b64-cluster-ca", "kubelet-extra-args", "use-max-pods"}
	for word, want := range map[string]string{
		"api-server-endpoint": "apiserver-endpoint",
		"b64-cluster-ac":      "b64-cluster-ca",
		"kubelet-extra-arg":   "kubelet-extra-args",
		"use-max-pod":         "use-max-pods",
		"colour":              "",
		"":                    "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
