// Package cluster gives a test a control plane and nodes that join it.
//
// Nothing in it is a stand-in that can be had as the real thing: etcd,
// kube-apiserver with the Node authorizer and NodeRestriction, the
// aws-iam-authenticator that EKS checks tokens with, kubelet, containerd, runc,
// CNI plugins, cloud-init and systemd. What is simulated is AWS: instance
// metadata, STS, EC2, EKS and ECR, over their own protocols.
//
//	control := cluster.StartControlPlane(t)
//	node := control.StartNode(cluster.NodeOptions{Kubelet: "1.36", UserData: …})
//	node.WaitReady(ctx)
//
// The control plane is one machine, each node another, and a cable between them
// is the VPC. A control plane knows one instance, so nodes come one after the
// other.
package cluster
