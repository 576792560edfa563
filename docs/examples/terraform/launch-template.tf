# A launch template whose user data is a file beside it.
data "aws_eks_cluster" "this" {
  name = "my-cluster"
}

resource "aws_launch_template" "blue" {
  name_prefix   = "blue-"
  image_id      = "ami-0123456789abcdef0"
  instance_type = "m5.large"

  user_data = base64encode(templatefile("${path.module}/user-data.sh.tftpl", {
    cluster_name          = data.aws_eks_cluster.this.name
    endpoint              = data.aws_eks_cluster.this.endpoint
    certificate_authority = data.aws_eks_cluster.this.certificate_authority[0].data
    service_cidr          = data.aws_eks_cluster.this.kubernetes_network_config[0].service_ipv4_cidr
  }))

  metadata_options {
    http_tokens = "required"
  }
}
