// Package pauseimage knows which ECR registry holds the pause image for a region.
//
// EKS keeps the image in its own account, and that account is another one in
// each partition and in each region that has to be opted into. The domain of
// the registry is not here: it is a fact of the instance.
package pauseimage

import "strings"

// mainAccount owns the registries of the regions that every account has.
const mainAccount = "602401143452"

// Registry gives the account and the region of the registry that a node in
// region pulls the pause image from.
//
// For a region that is not known (yet) it is the registry of another region of
// the same partition: networks do not reach from one partition into another,
// so a node of a new GovCloud region must be sent to GovCloud. Outside of the
// other partitions that is us-west-2.
func Registry(region string) (account, registryRegion string) {
	if account := regionAccount(region); account != "" {
		return account, region
	}
	registryRegion = fallbackRegion(region)
	return regionAccount(registryRegion), registryRegion
}

func regionAccount(region string) string {
	switch region {
	case "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-southeast-1", "ap-southeast-2",
		"ca-central-1", "eu-central-1", "eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3", "sa-east-1",
		"us-east-1", "us-east-2", "us-west-1", "us-west-2":
		return mainAccount

	// Regions that have to be opted into.
	case "af-south-1":
		return "877085696533"
	case "ap-east-1":
		return "800184023465"
	case "ap-east-2":
		return "533267051163"
	case "ap-south-2":
		return "900889452093"
	case "ap-southeast-3":
		return "296578399912"
	case "ap-southeast-4":
		return "491585149902"
	case "ap-southeast-5":
		return "151610086707"
	case "ap-southeast-6":
		return "333609536671"
	case "ap-southeast-7":
		return "121268973566"
	case "ca-west-1":
		return "761377655185"
	case "eu-central-2":
		return "900612956339"
	case "eu-south-1":
		return "590381155156"
	case "eu-south-2":
		return "455263428931"
	case "il-central-1":
		return "066635153087"
	case "me-central-1":
		return "759879836304"
	case "me-south-1":
		return "558608220178"
	case "mx-central-1":
		return "730335286997"

	// China.
	case "cn-north-1":
		return "918309763551"
	case "cn-northwest-1":
		return "961992271922"

	// GovCloud.
	case "us-gov-east-1":
		return "151742754352"
	case "us-gov-west-1":
		return "013241004608"

	// Isolated and sovereign partitions.
	case "us-iso-east-1":
		return "725322719131"
	case "us-iso-west-1":
		return "608367168043"
	case "us-isob-east-1":
		return "187977181151"
	case "us-isob-west-1":
		return "321162350305"
	case "us-isof-east-1":
		return "171035529773"
	case "us-isof-south-1":
		return "676585237158"
	case "eu-isoe-west-1":
		return "249663109785"
	case "eusc-de-east-1":
		return "877088126301"
	}
	return ""
}

func fallbackRegion(region string) string {
	// Each prefix ends in its hyphen, so us-isob- and us-isof- are not taken for
	// us-iso-.
	for _, partition := range [...]struct{ prefix, region string }{
		{"us-gov-", "us-gov-west-1"},
		{"cn-", "cn-northwest-1"},
		{"us-iso-", "us-iso-east-1"},
		{"us-isob-", "us-isob-east-1"},
		{"us-isof-", "us-isof-south-1"},
		{"eu-isoe-", "eu-isoe-west-1"},
		{"eusc-", "eusc-de-east-1"},
	} {
		if strings.HasPrefix(region, partition.prefix) {
			return partition.region
		}
	}
	return "us-west-2"
}
