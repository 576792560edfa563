package pauseimage

import "testing"

func TestRegistryOfKnownRegions(t *testing.T) {
	for region, want := range map[string]string{
		"af-south-1":      "877085696533",
		"ap-east-1":       "800184023465",
		"ap-east-2":       "533267051163",
		"ap-northeast-1":  "602401143452",
		"ap-northeast-2":  "602401143452",
		"ap-northeast-3":  "602401143452",
		"ap-south-1":      "602401143452",
		"ap-south-2":      "900889452093",
		"ap-southeast-1":  "602401143452",
		"ap-southeast-2":  "602401143452",
		"ap-southeast-3":  "296578399912",
		"ap-southeast-4":  "491585149902",
		"ap-southeast-5":  "151610086707",
		"ap-southeast-6":  "333609536671",
		"ap-southeast-7":  "121268973566",
		"ca-central-1":    "602401143452",
		"ca-west-1":       "761377655185",
		"cn-north-1":      "918309763551",
		"cn-northwest-1":  "961992271922",
		"eu-central-1":    "602401143452",
		"eu-central-2":    "900612956339",
		"eu-isoe-west-1":  "249663109785",
		"eu-north-1":      "602401143452",
		"eu-south-1":      "590381155156",
		"eu-south-2":      "455263428931",
		"eu-west-1":       "602401143452",
		"eu-west-2":       "602401143452",
		"eu-west-3":       "602401143452",
		"eusc-de-east-1":  "877088126301",
		"il-central-1":    "066635153087",
		"me-central-1":    "759879836304",
		"me-south-1":      "558608220178",
		"mx-central-1":    "730335286997",
		"sa-east-1":       "602401143452",
		"us-east-1":       "602401143452",
		"us-east-2":       "602401143452",
		"us-gov-east-1":   "151742754352",
		"us-gov-west-1":   "013241004608",
		"us-iso-east-1":   "725322719131",
		"us-iso-west-1":   "608367168043",
		"us-isob-east-1":  "187977181151",
		"us-isob-west-1":  "321162350305",
		"us-isof-east-1":  "171035529773",
		"us-isof-south-1": "676585237158",
		"us-west-1":       "602401143452",
		"us-west-2":       "602401143452",
	} {
		account, registryRegion := Registry(region)
		if account != want || registryRegion != region {
			t.Errorf("Registry(%q) = %s, %s, want %s in the region itself", region, account, registryRegion, want)
		}
	}
}

func TestRegistryOfUnknownRegions(t *testing.T) {
	for _, tt := range []struct{ region, account, registryRegion string }{
		{"us-gov-central-1", "013241004608", "us-gov-west-1"},
		{"cn-south-1", "961992271922", "cn-northwest-1"},
		{"us-iso-north-1", "725322719131", "us-iso-east-1"},
		{"us-isob-north-1", "187977181151", "us-isob-east-1"},
		{"us-isof-north-1", "676585237158", "us-isof-south-1"},
		{"eu-isoe-east-1", "249663109785", "eu-isoe-west-1"},
		{"eusc-fr-west-1", "877088126301", "eusc-de-east-1"},
		{"us-isox-east-1", "602401143452", "us-west-2"},
		{"us-north-1", "602401143452", "us-west-2"},
		{"eu-east-1", "602401143452", "us-west-2"},
		{"US-EAST-1", "602401143452", "us-west-2"},
		{"us-gov", "602401143452", "us-west-2"},
		{"", "602401143452", "us-west-2"},
	} {
		account, registryRegion := Registry(tt.region)
		if account != tt.account || registryRegion != tt.registryRegion {
			t.Errorf("Registry(%q) = %s, %s, want %s, %s", tt.region, account, registryRegion, tt.account, tt.registryRegion)
		}
	}
}
