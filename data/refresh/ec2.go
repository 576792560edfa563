package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// newEC2 is configured as every AWS program is: profile, region, credentials,
// AWS_ENDPOINT_URL_EC2.
func newEC2(ctx context.Context) (*ec2.Client, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	return ec2.NewFromConfig(cfg), nil
}

// fromEC2 asks for the types of one region. No region has them all, which is one
// more reason why a type that is not found is kept.
func fromEC2(ctx context.Context, client ec2.DescribeInstanceTypesAPIClient) ([]row, error) {
	var rows []row
	pages := ec2.NewDescribeInstanceTypesPaginator(client, &ec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(100)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, info := range page.InstanceTypes {
			r, err := rowOf(info)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", info.InstanceType, err)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func rowOf(info types.InstanceTypeInfo) (row, error) {
	r := row{
		name:       string(info.InstanceType),
		hypervisor: string(info.Hypervisor),
		metal:      aws.ToBool(info.BareMetal),
	}
	if cpu := info.ProcessorInfo; cpu != nil {
		// Macs have architectures of their own, for which there are no nodes: they
		// stay unknown.
		switch {
		case slices.Contains(cpu.SupportedArchitectures, types.ArchitectureTypeX8664):
			r.arch = "amd64"
		case slices.Contains(cpu.SupportedArchitectures, types.ArchitectureTypeArm64):
			r.arch = "arm64"
		}
	}
	if info.VCpuInfo != nil {
		r.vcpus = int(aws.ToInt32(info.VCpuInfo.DefaultVCpus))
	}
	if info.MemoryInfo != nil {
		r.memory = int(aws.ToInt64(info.MemoryInfo.SizeInMiB))
	}

	net := info.NetworkInfo
	if net == nil {
		return row{}, errors.New("nothing is said about its network")
	}
	r.ips = int(aws.ToInt32(net.Ipv4AddressesPerInterface))
	r.cards = len(net.NetworkCards)
	// MaximumNetworkInterfaces of the whole type adds up all the cards. Pods get
	// addresses from the default one only.
	for _, card := range net.NetworkCards {
		if aws.ToInt32(card.NetworkCardIndex) == aws.ToInt32(net.DefaultNetworkCardIndex) {
			r.enis = int(aws.ToInt32(card.MaximumNetworkInterfaces))
		}
	}
	if r.enis == 0 || r.ips == 0 {
		return row{}, errors.New("its default network card is not described")
	}
	return r, nil
}
