//go:build tools

// Package authenticator pins the program that checks EKS tokens.
package authenticator

import _ "sigs.k8s.io/aws-iam-authenticator/cmd/aws-iam-authenticator"
