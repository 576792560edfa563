# Packer 1.10 and newer bring no builder for AWS along. This is beside the
# templates and not among them since Packer 1.6, Debian's, refuses the block.
# With a newer one: cp packer/plugins/plugins.pkr.hcl packer/ && packer init packer

packer {
  required_plugins {
    amazon = {
      version = ">= 1.2.8"
      source  = "github.com/hashicorp/amazon"
    }
  }
}
