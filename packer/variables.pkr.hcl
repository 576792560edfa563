# What an image is made of. Nothing is downloaded whose checksum is not here.

variable "nodeadm_package" {
  description = "A deb, rpm or tar.gz that make release made, as a path on this computer. The tar.gz is for every distribution."
  type        = string
}

variable "nodeadm_sha256" {
  description = "The package's line in SHA256SUMS, without the name."
  type        = string
  validation {
    condition     = length(var.nodeadm_sha256) == 64
    error_message = "Nodeadm_sha256 has to be the 64 hexadecimal digits of a SHA-256."
  }
}

variable "kubernetes_version" {
  description = "The version that kubelet has to be, such as 1.34.2."
  type        = string
}

variable "kubelet_url" {
  description = "Where the instance gets kubelet from. EKS's own are at https://amazon-eks.s3.us-west-2.amazonaws.com/VERSION/DATE/bin/linux/ARCH/kubelet."
  type        = string
}

variable "kubelet_sha256" {
  description = "The checksum of that file; EKS has it at the same address with .sha256 at the end."
  type        = string
  validation {
    condition     = length(var.kubelet_sha256) == 64
    error_message = "Kubelet_sha256 has to be the 64 hexadecimal digits of a SHA-256."
  }
}

variable "arch" {
  description = "The image's architecture, amd64 or arm64."
  type        = string
  default     = "amd64"
  validation {
    condition     = contains(["amd64", "arm64"], var.arch)
    error_message = "Arch has to be amd64 or arm64."
  }
}

variable "region" {
  description = "Where the image is made."
  type        = string
  default     = "us-west-2"
}

variable "subnet_id" {
  description = "Where the instance runs, if the account has no default VPC."
  type        = string
  default     = ""
}
