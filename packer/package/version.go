package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

var (
	tag      = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.-]+))?$`)
	afterTag = regexp.MustCompile(`^(.+)-(\d+)-(g[0-9a-f]+)$`)
	commit   = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
)

// packageVersion makes of what git describe says a version that sorts as
// commits do, for dpkg and for rpm, neither of which takes a - for what it is
// here: ~ comes before everything, + after the version it follows.
//
//	v1.2.0                  1.2.0
//	v1.2.0-rc.1             1.2.0~rc.1
//	v1.2.0-4-g0123456789ab  1.2.0+4.g0123456789ab
//	0123456789ab            0.0.0~git20260102030405.0123456789ab
func packageVersion(described string, date time.Time) (string, error) {
	rest, dirty := strings.CutSuffix(described, "-dirty")
	var after []string
	if m := afterTag.FindStringSubmatch(rest); m != nil {
		rest, after = m[1], m[2:]
	}
	if dirty {
		after = append(after, "dirty")
	}
	var version string
	if m := tag.FindStringSubmatch(rest); m != nil {
		version = m[1]
		if m[2] != "" {
			version += "~" + strings.ReplaceAll(m[2], "-", ".")
		}
	} else if commit.MatchString(rest) {
		version = "0.0.0~git" + date.UTC().Format("20060102150405") + "." + rest
	} else {
		return "", fmt.Errorf("%q is neither a version nor a commit: write a version such as v1.2.0 or v1.2.0-rc.1, without build metadata", described)
	}
	if after != nil {
		version += "+" + strings.Join(after, ".")
	}
	return version, nil
}
