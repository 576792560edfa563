package main

import (
	"errors"
	"fmt"
	"os"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// readConfig decodes kubelet's configuration file and refuses what kubelet does
// not know: a misspelt field is the one mistake that no later step would show.
// No file means kubelet's defaults.
func readConfig(path string) (kubeletconfig.KubeletConfiguration, error) {
	var config kubeletconfig.KubeletConfiguration
	if path == "" {
		return config, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return config, fmt.Errorf("--config: %w", err)
	}
	if err := decodeStrict(b, &config); err != nil {
		return config, fmt.Errorf("--config: %s does not fit kubelet.config.k8s.io/v1beta1 KubeletConfiguration: %w", path, err)
	}
	if got := config.APIVersion + " " + config.Kind; got != "kubelet.config.k8s.io/v1beta1 KubeletConfiguration" {
		return config, fmt.Errorf("--config: %s is %q, not kubelet.config.k8s.io/v1beta1 KubeletConfiguration", path, got)
	}
	return config, nil
}

// decodeStrict goes the way kubelet goes: by sigs.k8s.io/json, which tells
// maxpods from maxPods where encoding/json does not.
func decodeStrict(b []byte, into any) error {
	b, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(b, into)
	return errors.Join(append(strict, err)...)
}

// checkKubeconfig wants a file that is a YAML object. What its fields say only
// an API server can judge.
func checkKubeconfig(path string) error {
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	var object map[string]any
	if err := yaml.UnmarshalStrict(b, &object); err != nil {
		return fmt.Errorf("--kubeconfig: %s is not YAML: %w", path, err)
	}
	if len(object) == 0 {
		return fmt.Errorf("--kubeconfig: %s is empty", path)
	}
	return nil
}
