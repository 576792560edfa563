# The images that nodes' images start from: each distribution's own, the newest.

locals {
  # A default, so that of another arch only its validation is heard.
  amazon_arch   = lookup({ amd64 = "x86_64", arm64 = "arm64" }, var.arch, "")
  instance_type = lookup({ amd64 = "m5.large", arm64 = "m6g.large" }, var.arch, "")
  name          = "${var.kubernetes_version}-${var.arch}-{{timestamp}}"
  tags = {
    "kubernetes-version" = var.kubernetes_version
    "source-image"       = "{{ .SourceAMIName }}"
  }
}

source "amazon-ebs" "al2023" {
  ami_name      = "nodeadm-al2023-${local.name}"
  region        = var.region
  subnet_id     = var.subnet_id
  instance_type = local.instance_type
  ssh_username  = "ec2-user"
  tags          = local.tags
  source_ami_filter {
    filters     = { name = "al2023-ami-2023.*-kernel-*-${local.amazon_arch}" }
    owners      = ["amazon"]
    most_recent = true
  }
}

source "amazon-ebs" "debian-12" {
  ami_name      = "nodeadm-debian-12-${local.name}"
  region        = var.region
  subnet_id     = var.subnet_id
  instance_type = local.instance_type
  ssh_username  = "admin"
  tags          = local.tags
  source_ami_filter {
    filters     = { name = "debian-12-${var.arch}-*" }
    owners      = ["136693071363"]
    most_recent = true
  }
}

source "amazon-ebs" "ubuntu-2204" {
  ami_name      = "nodeadm-ubuntu-2204-${local.name}"
  region        = var.region
  subnet_id     = var.subnet_id
  instance_type = local.instance_type
  ssh_username  = "ubuntu"
  tags          = local.tags
  source_ami_filter {
    filters     = { name = "ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-${var.arch}-server-*" }
    owners      = ["099720109477"]
    most_recent = true
  }
}

source "amazon-ebs" "ubuntu-2404" {
  ami_name      = "nodeadm-ubuntu-2404-${local.name}"
  region        = var.region
  subnet_id     = var.subnet_id
  instance_type = local.instance_type
  ssh_username  = "ubuntu"
  tags          = local.tags
  source_ami_filter {
    filters     = { name = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-${var.arch}-server-*" }
    owners      = ["099720109477"]
    most_recent = true
  }
}
