package simulator

// Default is a node that was written up in public: an m5.large of a managed
// node group in eu-west-1, in a cluster of Kubernetes 1.22.
//
// It is complete: whoever changes its region has to change the names that hold
// the region, too. A World that gives only a type and a region is derived whole.
func Default() World {
	return World{
		Instance: Instance{
			Type:      "m5.large",
			ID:        "i-0a1b2c3d4e5f60718",
			AMI:       "ami-08702177b0dcfc054",
			Region:    "eu-west-1",
			Zone:      "eu-west-1a",
			Account:   "111111111111",
			LocalIPv4: "192.168.18.230",
			VPCCIDRs:  []string{"192.168.0.0/16"},
			Hostname:  "ip-192-168-18-230.eu-west-1.compute.internal",
			Role:      "NodeInstanceRole",
			Tags: map[string]string{
				"aws:ec2launchtemplate:id":           "lt-04b22845f7d14ce5f",
				"aws:ec2launchtemplate:version":      "1",
				"eks:cluster-name":                   "ironman-2022",
				"eks:nodegroup-name":                 "demo-ng",
				"kubernetes.io/cluster/ironman-2022": "owned",
			},
			Lifecycle: "on-demand",
		},
		UserData: exampleUserData,
		Cluster: &Cluster{
			Name:                 "ironman-2022",
			Endpoint:             exampleEndpoint,
			CertificateAuthority: exampleCA,
			ServiceIPv4CIDR:      "10.100.0.0/16",
			Version:              "1.22",
		},
	}.Complete()
}

const exampleEndpoint = "https://0123456789ABCDEF0123456789ABCDEF.gr7.eu-west-1.eks.amazonaws.com"

// exampleCA is a self-signed certificate that is valid for a century. Its
// private key was never kept.
const exampleCA = "" +
	"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJYVENDQVFPZ0F3SUJBZ0lCQVRBS0JnZ3Foa2pPUFFRREFqQVZNUk13RVFZ" +
	"RFZRUURFd3ByZFdKbGNtNWwKZEdWek1DQVhEVEl3TURFd01UQXdNREF3TUZvWUR6SXhNakF3TVRBeE1EQXdNREF3V2pBVk1STXdF" +
	"UVlEVlFRRApFd3ByZFdKbGNtNWxkR1Z6TUZrd0V3WUhLb1pJemowQ0FRWUlLb1pJemowREFRY0RRZ0FFZlFldzg1amxSNHkxCk9p" +
	"aDdMUGJmUUVkdzh0WThEQ2tDeXErQk10SXVWSFhXTFM3ZUVWbWtvYW16RWlBd1ZCekVjalhyNlhmMnBSR2YKMkw5UGhVcUVUNk5D" +
	"TUVBd0RnWURWUjBQQVFIL0JBUURBZ0trTUE4R0ExVWRFd0VCL3dRRk1BTUJBZjh3SFFZRApWUjBPQkJZRUZJY2w1ckJGUnc3a0lH" +
	"U0doV3JYZ3JRc2pVNXFNQW9HQ0NxR1NNNDlCQU1DQTBnQU1FVUNJUURGCjNLMTcxU0VOc3lQN1IrdVl6NHNxb01oZTFKNllQQlJ3" +
	"Q1ZzendJc0VaZ0lnQ2tjQkxKTWdKTjNGdEM0RTJmNGgKUHRnUkxVSmhpQ1pmdHpJN3dFRDJRVEU9Ci0tLS0tRU5EIENFUlRJRklD" +
	"QVRFLS0tLS0K"

// exampleUserData passes what a managed node group passes, label for label.
const exampleUserData = `#!/bin/bash
set -ex
/etc/eks/bootstrap.sh ironman-2022 --kubelet-extra-args '--node-labels=eks.amazonaws.com/sourceLaunchTemplateVersion=1,alpha.eksctl.io/nodegroup-name=demo-ng,alpha.eksctl.io/cluster-name=ironman-2022,eks.amazonaws.com/nodegroup-image=ami-08702177b0dcfc054,eks.amazonaws.com/capacityType=ON_DEMAND,eks.amazonaws.com/nodegroup=demo-ng,eks.amazonaws.com/sourceLaunchTemplateId=lt-04b22845f7d14ce5f --max-pods=29' --b64-cluster-ca '` + exampleCA + `' --apiserver-endpoint '` + exampleEndpoint + `' --dns-cluster-ip '10.100.0.10' --use-max-pods false
`

// builtinTypes are few on purpose: the simulator is no table of instance types.
func builtinTypes() []InstanceType {
	return []InstanceType{
		{Type: "m4.large", ENIs: 2, IPv4PerENI: 10, VCPUs: 2, MemoryMiB: 8192, Hypervisor: "xen"},
		{Type: "m4.xlarge", ENIs: 4, IPv4PerENI: 15, VCPUs: 4, MemoryMiB: 16384, Hypervisor: "xen"},
		{Type: "m5.large", ENIs: 3, IPv4PerENI: 10, VCPUs: 2, MemoryMiB: 8192},
	}
}
