# How an instance becomes an image: the same on every distribution; the scripts
# look at /etc/os-release.

locals {
  # Not executed but read, since some images mount /tmp noexec.
  as_root = "sudo env {{ .Vars }} bash -e {{ .Path }}"
  # The suffix says what kind of package it is, and what for. A variable's
  # validation knows no other variable: that there is no such file ends it here.
  other_arch = lookup({ amd64 = "arm64", arm64 = "amd64" }, var.arch, "")
  for_other  = length(split("_${local.other_arch}.", basename(var.nodeadm_package))) > 1
  package    = local.for_other ? file("nodeadm_package for ${local.other_arch}, where arch is ${var.arch}") : "/tmp/${basename(var.nodeadm_package)}"
}

build {
  sources = [
    "source.amazon-ebs.al2023",
    "source.amazon-ebs.debian-12",
    "source.amazon-ebs.ubuntu-2204",
    "source.amazon-ebs.ubuntu-2404",
  ]

  # cloud-init still writes the package manager's configuration when SSH answers.
  # 2: it is done, with warnings.
  provisioner "shell" {
    inline           = ["cloud-init status --wait"]
    valid_exit_codes = [0, 2]
  }

  provisioner "file" {
    source      = var.nodeadm_package
    destination = local.package
  }

  provisioner "shell" {
    scripts = [
      "${path.root}/scripts/container-runtime.sh",
      "${path.root}/scripts/kubelet.sh",
      "${path.root}/scripts/nodeadm.sh",
    ]
    environment_vars = [
      "NODEADM_PACKAGE=${local.package}",
      "NODEADM_SHA256=${var.nodeadm_sha256}",
      "KUBERNETES_VERSION=${var.kubernetes_version}",
      "KUBELET_URL=${var.kubelet_url}",
      "KUBELET_SHA256=${var.kubelet_sha256}",
    ]
    execute_command = local.as_root
  }

  # An image that lacks something is not made. Cleaning comes last: with the
  # instance's keys goes the way to log in again.
  provisioner "shell" {
    inline          = ["rm '${local.package}'", "nodeadm image check", "nodeadm image clean"]
    execute_command = local.as_root
  }
}
