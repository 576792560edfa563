package simulator

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	actionDescribeInstances     = "ec2:DescribeInstances"
	actionDescribeInstanceTypes = "ec2:DescribeInstanceTypes"
)

// maxListed bounds the ids or types one call may name, as EC2 does.
const maxListed = 100

func (s *Server) serveEC2(w http.ResponseWriter, r *http.Request, action string, form url.Values) {
	switch s.signature(r, "ec2") {
	case unsigned:
		s.ec2Error(w, http.StatusForbidden, "MissingAuthenticationToken", "Request is missing Authentication Token")
		return
	case wrongScope:
		s.ec2Error(w, http.StatusUnauthorized, "AuthFailure",
			"AWS was not able to validate the provided access credentials")
		return
	}
	var answer func(url.Values) (*document, *apiError)
	switch action {
	case actionDescribeInstances:
		answer = s.describeInstances
	case actionDescribeInstanceTypes:
		answer = s.describeInstanceTypes
	default:
		s.ec2Error(w, http.StatusBadRequest, "InvalidAction",
			fmt.Sprintf("The action %s is not valid for this web service.", form.Get("Action")))
		return
	}
	if s.denied(action) {
		s.ec2Error(w, http.StatusForbidden, "UnauthorizedOperation", fmt.Sprintf(
			"You are not authorized to perform this operation. User: %s is not authorized to perform: %s because no identity-based policy allows the %[2]s action",
			s.caller(), action))
		return
	}
	for key := range form {
		if strings.HasPrefix(key, "Filter.") {
			s.ec2Error(w, http.StatusBadRequest, "InvalidParameterValue", "the simulator knows no filters")
			return
		}
	}
	doc, apiErr := answer(form)
	if apiErr != nil {
		s.ec2Error(w, http.StatusBadRequest, apiErr.code, apiErr.message)
		return
	}
	s.xmlAnswer(w, http.StatusOK, doc)
}

type apiError struct{ code, message string }

// listed returns the values of NAME.1, NAME.2 and so on.
func listed(form url.Values, name string) ([]string, *apiError) {
	var values []string
	for i := 1; ; i++ {
		key := name + "." + strconv.Itoa(i)
		if !form.Has(key) {
			return values, nil
		}
		if i > maxListed {
			return nil, &apiError{"InvalidParameterValue", fmt.Sprintf("more than %d values of %s", maxListed, name)}
		}
		values = append(values, form.Get(key))
	}
}

func (s *Server) describeInstances(form url.Values) (*document, *apiError) {
	in := s.world.Instance
	ids, apiErr := listed(form, "InstanceId")
	if apiErr != nil {
		return nil, apiErr
	}
	for _, id := range ids {
		if !strings.HasPrefix(id, "i-") {
			return nil, &apiError{"InvalidInstanceID.Malformed", fmt.Sprintf("Invalid id: %q", id)}
		}
		if id != in.ID {
			return nil, &apiError{"InvalidInstanceID.NotFound", fmt.Sprintf("The instance ID '%s' does not exist", id)}
		}
	}
	s.mu.Lock()
	s.described++
	name := in.PrivateDNSName
	if s.described <= in.PrivateDNSNameAfter {
		name = ""
	}
	s.mu.Unlock()

	d := s.newDocument("DescribeInstancesResponse")
	d.in("reservationSet", func() {
		d.in("item", func() {
			d.text("reservationId", in.derivedID("r"))
			d.text("ownerId", in.Account)
			d.in("instancesSet", func() { d.in("item", func() { s.instance(d, name) }) })
		})
	})
	return d, nil
}

func (s *Server) instance(d *document, privateDNSName string) {
	in := s.world.Instance
	d.text("instanceId", in.ID)
	d.text("imageId", in.AMI)
	d.in("instanceState", func() {
		d.text("code", "16")
		d.text("name", "running")
	})
	d.text("privateDnsName", privateDNSName)
	d.text("dnsName", "")
	d.text("amiLaunchIndex", "0")
	d.text("instanceType", in.Type)
	d.text("launchTime", s.startTime().Format(time.RFC3339))
	d.in("placement", func() {
		d.text("availabilityZone", in.Zone)
		d.text("tenancy", "default")
	})
	d.text("subnetId", in.derivedID("subnet"))
	d.text("vpcId", in.derivedID("vpc"))
	d.text("privateIpAddress", in.LocalIPv4)
	d.text("architecture", in.Architecture)
	// Only spot says so here, while IMDS always answers.
	if in.Lifecycle == "spot" {
		d.text("instanceLifecycle", "spot")
	}
	d.in("tagSet", func() {
		for _, key := range sortedKeys(in.Tags) {
			d.in("item", func() {
				d.text("key", key)
				d.text("value", in.Tags[key])
			})
		}
	})
	d.in("networkInterfaceSet", func() {
		d.in("item", func() {
			d.text("networkInterfaceId", in.derivedID("eni"))
			d.text("macAddress", in.MAC)
			d.text("privateIpAddress", in.LocalIPv4)
			d.text("privateDnsName", privateDNSName)
			d.in("ipv6AddressesSet", func() {
				for _, ip := range in.IPv6 {
					d.in("item", func() { d.text("ipv6Address", ip) })
				}
			})
		})
	})
	if in.Role != "" {
		d.in("iamInstanceProfile", func() {
			d.text("arn", "arn:"+in.Partition+":iam::"+in.Account+":instance-profile/"+in.Role)
		})
	}
	d.in("metadataOptions", func() {
		d.text("state", "applied")
		d.text("httpTokens", "required")
		d.text("httpPutResponseHopLimit", strconv.Itoa(in.HopLimit))
		d.text("httpEndpoint", "enabled")
		tags := "disabled"
		if in.TagsInMetadata {
			tags = "enabled"
		}
		d.text("instanceMetadataTags", tags)
	})
}

func (s *Server) describeInstanceTypes(form url.Values) (*document, *apiError) {
	names, apiErr := listed(form, "InstanceType")
	if apiErr != nil {
		return nil, apiErr
	}
	if len(names) == 0 {
		for _, t := range s.types {
			names = append(names, t.Type)
		}
	}
	var found []InstanceType
	var missing []string
	seen := make(map[string]bool)
	for _, name := range names {
		t, ok := s.instanceType(name)
		switch {
		case !ok:
			missing = append(missing, name)
		case !seen[name]:
			seen[name] = true
			found = append(found, t)
		}
	}
	if len(missing) > 0 {
		return nil, &apiError{"InvalidInstanceType",
			fmt.Sprintf("The following supplied instance types do not exist: [%s]", strings.Join(missing, ", "))}
	}
	d := s.newDocument("DescribeInstanceTypesResponse")
	d.in("instanceTypeSet", func() {
		for _, t := range found {
			d.in("item", func() { t.describe(d) })
		}
	})
	return d, nil
}

func (s *Server) instanceType(name string) (InstanceType, bool) {
	for _, t := range s.types {
		if t.Type == name {
			return t, true
		}
	}
	return InstanceType{}, false
}

func (t InstanceType) describe(d *document) {
	threads := 2
	if t.Architecture == "arm64" || t.VCPUs < 2 {
		threads = 1
	}
	cards := t.Cards
	if len(cards) == 0 {
		cards = []int{t.ENIs}
	}
	d.text("instanceType", t.Type)
	d.text("currentGeneration", "true")
	d.text("bareMetal", strconv.FormatBool(t.bareMetal()))
	if !t.bareMetal() {
		d.text("hypervisor", t.Hypervisor)
	}
	d.in("processorInfo", func() {
		d.in("supportedArchitectures", func() { d.text("item", t.Architecture) })
	})
	d.in("vCpuInfo", func() {
		d.text("defaultVCpus", strconv.Itoa(t.VCPUs))
		d.text("defaultCores", strconv.Itoa(t.VCPUs/threads))
		d.text("defaultThreadsPerCore", strconv.Itoa(threads))
	})
	d.in("memoryInfo", func() { d.text("sizeInMiB", strconv.Itoa(t.MemoryMiB)) })
	d.in("networkInfo", func() {
		d.text("maximumNetworkInterfaces", strconv.Itoa(t.ENIs))
		d.text("maximumNetworkCards", strconv.Itoa(len(cards)))
		d.text("defaultNetworkCardIndex", "0")
		d.in("networkCards", func() {
			for i, enis := range cards {
				d.in("item", func() {
					d.text("networkCardIndex", strconv.Itoa(i))
					d.text("maximumNetworkInterfaces", strconv.Itoa(enis))
				})
			}
		})
		d.text("ipv4AddressesPerInterface", strconv.Itoa(t.IPv4PerENI))
		d.text("ipv6AddressesPerInterface", strconv.Itoa(t.IPv4PerENI))
		d.text("ipv6Supported", "true")
	})
}

// document writes an EC2 answer element by element.
type document struct {
	b    bytes.Buffer
	root string
}

// newDocument begins an answer with its request id; close ends it.
func (s *Server) newDocument(root string) *document {
	d := &document{root: root}
	d.b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n")
	fmt.Fprintf(&d.b, `<%s xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">`, root)
	d.text("requestId", s.requestID())
	return d
}

func (d *document) in(name string, body func()) {
	d.b.WriteString("<" + name + ">")
	body()
	d.b.WriteString("</" + name + ">")
}

func (d *document) text(name, value string) {
	d.in(name, func() { xml.EscapeText(&d.b, []byte(value)) })
}

func (d *document) close() []byte {
	d.b.WriteString("</" + d.root + ">\n")
	return d.b.Bytes()
}

func (s *Server) ec2Error(w http.ResponseWriter, status int, code, message string) {
	d := &document{root: "Response"}
	d.b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n<Response>")
	d.in("Errors", func() {
		d.in("Error", func() {
			d.text("Code", code)
			d.text("Message", message)
		})
	})
	d.text("RequestID", s.requestID())
	s.xmlAnswer(w, status, d)
}

func (s *Server) xmlAnswer(w http.ResponseWriter, status int, d *document) {
	body := d.close()
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}
