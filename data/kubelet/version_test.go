package kubelet

import "testing"

func TestParseVersion(t *testing.T) {
	for s, want := range map[string]Version{
		"v1.30.4":              {1, 30, 4},
		"1.30":                 {1, 30, 0},
		"1.30.4-eks-abc123":    {1, 30, 4},
		"v1.22.6-eks-7d68063":  {1, 22, 6},
		"Kubernetes v1.34.4\n": {1, 34, 4},
		"v1.31.0+k3s":          {1, 31, 0},
		"1.29+":                {1, 29, 0},
		"v1.33.0-alpha.1":      {1, 33, 0},
		" v1.37.0 ":            {1, 37, 0},
	} {
		if got, err := ParseVersion(s); err != nil || got != want {
			t.Errorf("ParseVersion(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "v", "1", "1.", ".30", "1.30.", "1.x", "1.30.4.5", "vv1.30", "latest", "-1.30", "1.-30", "1.30 4",
		"1.99999999999", "v1.+30", "Kubernetes", "kubelet: not found",
	} {
		if got, err := ParseVersion(s); err == nil {
			t.Errorf("ParseVersion(%q) = %v, want an error", s, got)
		}
	}
}

func TestVersionOrder(t *testing.T) {
	v := Version{1, 30, 4}
	if v.String() != "v1.30.4" {
		t.Error(v.String())
	}
	if !v.AtLeast(30) || !v.AtLeast(29) || v.AtLeast(31) || (Version{}).AtLeast(0) {
		t.Error("AtLeast")
	}
	for _, w := range []Version{{0, 99, 0}, {1, 9, 9}, {1, 30, 3}} {
		if v.Compare(w) <= 0 || w.Compare(v) >= 0 || v.Compare(v) != 0 {
			t.Errorf("Compare with %v", w)
		}
	}
}
