package facts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/imds"
)

// identityDocument is the part of EC2's instance identity document that is
// used here.
type identityDocument struct {
	InstanceID       string `json:"instanceId"`
	InstanceType     string `json:"instanceType"`
	ImageID          string `json:"imageId"`
	Region           string `json:"region"`
	AvailabilityZone string `json:"availabilityZone"`
	AccountID        string `json:"accountId"`
}

var (
	instanceIDPattern   = regexp.MustCompile(`^i-[0-9a-f]{8,17}$`)
	instanceTypePattern = regexp.MustCompile(`^[a-z0-9-]+\.[a-z0-9-]+$`)
	regionPattern       = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`)
	zonePattern         = regexp.MustCompile(`^[a-z]{2,}(-[a-z0-9]+)+$`)
	macPattern          = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)
	domainPattern       = regexp.MustCompile(`^[a-z0-9.-]+$`)
)

// GatherInstance reads instance metadata: after the token two round trips, the
// second one only for what is filed under the interface's MAC address.
func GatherInstance(ctx context.Context, client *imds.Client) (Instance, error) {
	var i Instance
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return client.Get(ctx, "dynamic/instance-identity/document", func(body string) error {
			var doc identityDocument
			if err := json.Unmarshal([]byte(body), &doc); err != nil {
				return fmt.Errorf("not an instance identity document: %w: %s", err, excerpt(body))
			}
			for _, field := range []struct {
				name, value string
				pattern     *regexp.Regexp
			}{
				{"instanceId", doc.InstanceID, instanceIDPattern},
				{"instanceType", doc.InstanceType, instanceTypePattern},
				{"region", doc.Region, regionPattern},
				{"availabilityZone", doc.AvailabilityZone, zonePattern},
			} {
				if !field.pattern.MatchString(field.value) {
					return fmt.Errorf("instance identity document: %s is %s", field.name, excerpt(field.value))
				}
			}
			i.ID, i.Type, i.AMI = doc.InstanceID, doc.InstanceType, doc.ImageID
			i.Region, i.Zone, i.Account = doc.Region, doc.AvailabilityZone, doc.AccountID
			return nil
		})
	})
	g.Go(func() error {
		return optional(client.Lookup(ctx, "meta-data/services/partition", func(body string) error {
			return match(body, domainPattern, &i.Partition)
		}))
	})
	g.Go(func() error { return get(ctx, client, "meta-data/services/domain", domainPattern, &i.ServicesDomain) })
	g.Go(func() error {
		return optional(client.Lookup(ctx, "meta-data/instance-life-cycle", func(body string) error {
			i.Lifecycle = strings.TrimSpace(body)
			return nil
		}))
	})
	g.Go(func() error {
		return client.Get(ctx, "meta-data/local-ipv4", func(body string) (err error) {
			i.IPv4, err = netip.ParseAddr(strings.TrimSpace(body))
			return err
		})
	})
	g.Go(func() error {
		// Where there is none, EC2 is asked for the node's name.
		return optional(client.Lookup(ctx, "meta-data/local-hostname", func(body string) error {
			// With several domain names in the DHCP options there are several
			// names here; the first is the machine's own.
			words := strings.Fields(body)
			if len(words) == 0 {
				return errors.New("it is empty")
			}
			i.Hostname = strings.ToLower(words[0])
			return nil
		}))
	})
	g.Go(func() error {
		if err := get(ctx, client, "meta-data/mac", macPattern, &i.MAC); err != nil {
			return err
		}
		card := "meta-data/network/interfaces/macs/" + i.MAC
		cidrs := make(chan error, 1)
		go func() {
			cidrs <- optional(client.Lookup(ctx, card+"/vpc-ipv4-cidr-blocks", func(body string) (err error) {
				i.VPCIPv4CIDRs, err = parseLines(body, netip.ParsePrefix)
				return err
			}))
		}()
		err := optional(client.Lookup(ctx, card+"/ipv6s", func(body string) (err error) {
			i.IPv6, err = parseLines(body, netip.ParseAddr)
			return err
		}))
		return errors.Join(err, <-cidrs)
	})
	return i, g.Wait()
}

// waitForIPv6 waits for an address that the interface does not have yet.
//
// A minute is enough for EC2; an interface without one after that will not get
// one, because its subnet does not give any.
func waitForIPv6(ctx context.Context, client *imds.Client, mac string) (addrs []netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = client.Get(ctx, "meta-data/network/interfaces/macs/"+mac+"/ipv6s", func(body string) (err error) {
		if addrs, err = parseLines(body, netip.ParseAddr); err == nil && len(addrs) == 0 {
			err = errors.New("no IPv6 address yet")
		}
		return err
	})
	if err != nil {
		err = fault.New(fault.AWS, "launch the instance in a subnet that assigns IPv6 addresses, or give the interface one", "the cluster's IP family is ipv6, and the instance's network interface has no IPv6 address: %w", err)
	}
	return addrs, err
}

func get(ctx context.Context, client *imds.Client, path string, pattern *regexp.Regexp, into *string) error {
	return client.Get(ctx, path, func(body string) error { return match(body, pattern, into) })
}

// match takes a value that has the form it should have.
func match(body string, pattern *regexp.Regexp, into *string) error {
	body = strings.TrimSpace(body)
	if !pattern.MatchString(body) {
		return fmt.Errorf("unexpected value %s", excerpt(body))
	}
	*into = body
	return nil
}

func optional(err error) error {
	if errors.Is(err, imds.ErrAbsent) {
		return nil
	}
	return err
}

func parseLines[T any](body string, parse func(string) (T, error)) ([]T, error) {
	var all []T
	for _, line := range strings.Fields(body) {
		v, err := parse(line)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// excerpt quotes the beginning of something that should have been something
// else.
func excerpt(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%q…", s[:60])
	}
	return fmt.Sprintf("%q", s)
}
