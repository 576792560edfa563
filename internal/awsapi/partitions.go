package awsapi

import "strings"

// partition is a part of AWS with domains and credentials of its own.
type partition struct {
	name string
	// regions is how the names of its regions begin.
	regions string
	domain  string
	// dualStack is how the names of ECR's dual-stack hosts end, after "api." or
	// "on." (aws-sdk-go-v2, partitions.json).
	dualStack string
	// fips: there are registries with FIPS hosts.
	fips bool
}

// partitions are all of them; the first has every region that no other claims.
var partitions = []partition{
	{"aws", "", "amazonaws.com", "aws", true},
	{"aws-us-gov", "us-gov-", "amazonaws.com", "aws", true},
	{"aws-cn", "cn-", "amazonaws.com.cn", "amazonwebservices.com.cn", false},
	{"aws-iso", "us-iso-", "c2s.ic.gov", "aws.ic.gov", false},
	{"aws-iso-b", "us-isob-", "sc2s.sgov.gov", "aws.scloud", false},
	{"aws-iso-e", "eu-isoe-", "cloud.adc-e.uk", "cloud-aws.adc-e.uk", false},
	{"aws-iso-f", "us-isof-", "csp.hci.ic.gov", "aws.hci.ic.gov", false},
	{"aws-eusc", "eusc-", "amazonaws.eu", "amazonwebservices.eu", false},
}

func partitionOf(region string) partition {
	for _, p := range partitions[1:] {
		if strings.HasPrefix(region, p.regions) {
			return p
		}
	}
	return partitions[0]
}

// fipsRegions have FIPS endpoints of STS and ECR beside the usual ones. In
// GovCloud the usual one of STS is FIPS.
var fipsRegions = []string{"us-east-1", "us-east-2", "us-west-1", "us-west-2"}
