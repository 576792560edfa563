package awsapi

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func (c *Client) ec2() *ec2.Client {
	return ec2.NewFromConfig(c.config, func(o *ec2.Options) {
		o.BaseEndpoint = c.endpoint("EC2")
		o.EndpointOptions.UseFIPSEndpoint = c.fips()
		o.EndpointOptions.UseDualStackEndpoint = c.dualStack()
	})
}

// Instance is what EC2 tells of an instance and the instance itself does not.
type Instance struct {
	PrivateDNSName string
	Tags           map[string]string
}

// DescribeInstance asks EC2 for an instance, waiting until EC2 knows it and,
// with needName, its private DNS name.
func (c *Client) DescribeInstance(ctx context.Context, instanceID string, needName bool) (Instance, error) {
	api, found := c.ec2(), Instance{}
	err := c.call(ctx, "ec2:DescribeInstances", 0, func(ctx context.Context) error {
		out, err := api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{instanceID}})
		if err != nil {
			return err
		}
		found = Instance{Tags: map[string]string{}}
		known := false
		for _, reservation := range out.Reservations {
			for _, instance := range reservation.Instances {
				known = true
				found.PrivateDNSName = aws.ToString(instance.PrivateDnsName)
				for _, tag := range instance.Tags {
					found.Tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
				}
			}
		}
		if !known {
			return notYet("EC2 does not know %s yet", instanceID)
		}
		if needName && found.PrivateDNSName == "" {
			return notYet("EC2 does not know the private DNS name of %s yet", instanceID)
		}
		return nil
	})
	return found, err
}

// InstanceType is what EC2 tells of an instance type, as far as pods depend on it.
type InstanceType struct {
	VCPUs, MemoryMiB int
	ENIs             int // of the default network card
	IPv4PerENI       int
	NetworkCards     int
	Nitro, BareMetal bool
}

// DescribeInstanceType asks EC2 for one instance type.
func (c *Client) DescribeInstanceType(ctx context.Context, name string) (InstanceType, error) {
	api, found := c.ec2(), InstanceType{}
	err := c.call(ctx, "ec2:DescribeInstanceTypes", 0, func(ctx context.Context) error {
		out, err := api.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{types.InstanceType(name)}})
		if err != nil {
			return err
		}
		if len(out.InstanceTypes) == 0 || out.InstanceTypes[0].NetworkInfo == nil {
			return notYet("EC2 tells nothing of instance type %s", name)
		}
		found = instanceType(out.InstanceTypes[0])
		return nil
	})
	return found, err
}

func instanceType(info types.InstanceTypeInfo) InstanceType {
	network := info.NetworkInfo
	t := InstanceType{
		ENIs:         int(aws.ToInt32(network.MaximumNetworkInterfaces)),
		IPv4PerENI:   int(aws.ToInt32(network.Ipv4AddressesPerInterface)),
		NetworkCards: len(network.NetworkCards),
		Nitro:        info.Hypervisor == types.InstanceTypeHypervisorNitro,
		BareMetal:    aws.ToBool(info.BareMetal),
	}
	// MaximumNetworkInterfaces is the sum over all cards, and pods get
	// addresses on the default card only.
	defaultCard := aws.ToInt32(network.DefaultNetworkCardIndex)
	for _, card := range network.NetworkCards {
		if aws.ToInt32(card.NetworkCardIndex) == defaultCard {
			t.ENIs = int(aws.ToInt32(card.MaximumNetworkInterfaces))
		}
	}
	if info.VCpuInfo != nil {
		t.VCPUs = int(aws.ToInt32(info.VCpuInfo.DefaultVCpus))
	}
	if info.MemoryInfo != nil {
		t.MemoryMiB = int(aws.ToInt64(info.MemoryInfo.SizeInMiB))
	}
	return t
}
