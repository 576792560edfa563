# A launch template with its user data inside: a NodeConfig.
data "aws_eks_cluster" "inline" {
  name = "my-cluster"
}

resource "aws_launch_template" "inline" {
  name_prefix   = "inline-"
  image_id      = "ami-0123456789abcdef0"
  instance_type = "m5.large"

  user_data = base64encode(<<-EOT
    apiVersion: node.eks.aws/v1alpha1
    kind: NodeConfig
    spec:
      cluster:
        name: ${data.aws_eks_cluster.inline.name}
        apiServerEndpoint: ${data.aws_eks_cluster.inline.endpoint}
        certificateAuthority: ${data.aws_eks_cluster.inline.certificate_authority[0].data}
        cidr: ${data.aws_eks_cluster.inline.kubernetes_network_config[0].service_ipv4_cidr}
      kubelet:
        flags:
          - --node-labels=team=blue
  EOT
  )

  metadata_options {
    http_tokens = "required"
  }
}
