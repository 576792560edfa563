package awsapi

import (
	"context"
	"fmt"

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

// PrivateDNSName asks EC2 for the private DNS name of an instance, waiting
// until EC2 knows it.
func (c *Client) PrivateDNSName(ctx context.Context, instanceID string) (string, error) {
	api, name := c.ec2(), ""
	err := c.call(ctx, "ec2:DescribeInstances", 0, func(ctx context.Context) error {
		out, err := api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{instanceID}})
		if err != nil {
			return err
		}
		for _, reservation := range out.Reservations {
			for _, instance := range reservation.Instances {
				name = aws.ToString(instance.PrivateDnsName)
			}
		}
		if name == "" {
			return fmt.Errorf("EC2 does not know the private DNS name of %s yet", instanceID)
		}
		return nil
	})
	return name, err
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
			return fmt.Errorf("EC2 tells nothing of instance type %s", name)
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
