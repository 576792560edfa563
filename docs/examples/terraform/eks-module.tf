# terraform-aws-eks with images of one's own. The module writes the call of
# bootstrap.sh, or the NodeConfig, around what is said here; what the instances
# get then is in eks-module-script.sh and eks-module-nodeconfig.txt.
module "eks" {
  source  = "terraform-aws-modules/eks/aws"
  version = "~> 20.0"

  cluster_name    = "my-cluster"
  cluster_version = "1.32"
  vpc_id          = var.vpc_id
  subnet_ids      = var.subnet_ids

  eks_managed_node_groups = {
    script = {
      ami_type                   = "AL2_x86_64"
      ami_id                     = "ami-0123456789abcdef0"
      enable_bootstrap_user_data = true

      pre_bootstrap_user_data  = <<-EOT
        echo "net.core.somaxconn = 4096" >/etc/sysctl.d/80-somaxconn.conf
        sysctl --load /etc/sysctl.d/80-somaxconn.conf
      EOT
      bootstrap_extra_args     = "--kubelet-extra-args '--node-labels=team=blue'"
      post_bootstrap_user_data = <<-EOT
        logger "the node is up"
      EOT
    }

    nodeconfig = {
      ami_type                   = "AL2023_x86_64_STANDARD"
      ami_id                     = "ami-0123456789abcdef0"
      enable_bootstrap_user_data = true

      cloudinit_pre_nodeadm = [{
        content_type = "application/node.eks.aws"
        content      = <<-EOT
          apiVersion: node.eks.aws/v1alpha1
          kind: NodeConfig
          spec:
            kubelet:
              config:
                shutdownGracePeriod: 60s
              flags:
                - --node-labels=team=blue
        EOT
      }]
    }
  }
}

variable "vpc_id" {
  type = string
}

variable "subnet_ids" {
  type = list(string)
}
