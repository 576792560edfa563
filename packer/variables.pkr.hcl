# What an image is made of. Nothing is downloaded whose checksum is not here.

variable "nodeadm_package" {
  description = "A deb, rpm or tar.gz that make release made, as a path on this computer. The tar.gz is for every distribution."
  type        = string
  # The suffix tells the instance how to install it.
  validation {
    condition     = length([for suffix in [".deb", ".rpm", ".tar.gz"] : suffix if trimsuffix(var.nodeadm_package, suffix) != var.nodeadm_package]) == 1
    error_message = "Nodeadm_package has to be a .deb, .rpm or .tar.gz that make release made."
  }
  # It has that name on the instance, where shells read it.
  validation {
    condition     = trim(basename(var.nodeadm_package), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~+-") == ""
    error_message = "Nodeadm_package has to have a name of letters, digits and ._~+- only."
  }
}

variable "nodeadm_sha256" {
  description = "The package's line in SHA256SUMS, without the name."
  type        = string
  validation {
    condition     = length(var.nodeadm_sha256) == 64 && trim(lower(var.nodeadm_sha256), "0123456789abcdef") == ""
    error_message = "Nodeadm_sha256 has to be the 64 hexadecimal digits of a SHA-256."
  }
}

variable "kubernetes_version" {
  description = "The version that kubelet has to be, such as 1.34.2."
  type        = string
  validation {
    condition     = length([for number in split(".", var.kubernetes_version) : number if number != "" && trim(number, "0123456789") == ""]) == 3 && length(split(".", var.kubernetes_version)) == 3
    error_message = "Kubernetes_version has to be three numbers, such as 1.34.2, without a v."
  }
}

variable "kubelet_url" {
  description = "Where the instance gets kubelet from. EKS's own are at https://amazon-eks.s3.us-west-2.amazonaws.com/VERSION/DATE/bin/linux/ARCH/kubelet."
  type        = string
  validation {
    condition     = contains(["http:", "https:"], split("/", var.kubelet_url)[0]) && can(split("/", var.kubelet_url)[3])
    error_message = "Kubelet_url has to be the URL of a file, such as https://example.com/kubelet."
  }
}

variable "kubelet_sha256" {
  description = "The checksum of that file; EKS has it at the same address with .sha256 at the end."
  type        = string
  validation {
    condition     = length(var.kubelet_sha256) == 64 && trim(lower(var.kubelet_sha256), "0123456789abcdef") == ""
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
