//! Addresses of providers, as Terraform writes them.

use std::fmt;
use std::str::FromStr;

/// The host of providers without one.
const HOST: &str = "registry.terraform.io";
/// The namespace of providers without one.
const NAMESPACE: &str = "hashicorp";

/// The address of a provider: `<host>/<namespace>/<type>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderAddress {
    /// The host of its registry, with a port if there is one.
    pub host: String,
    /// The namespace.
    pub namespace: String,
    /// The type, such as `random`.
    pub kind: String,
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the address of a provider; the form is [[HOST/]NAMESPACE/]TYPE")]
pub struct ProviderAddressError(String);

impl FromStr for ProviderAddress {
    type Err = ProviderAddressError;

    /// Reads one to three parts. The default host and namespace are those of Terraform.
    fn from_str(text: &str) -> Result<Self, ProviderAddressError> {
        let failed = || ProviderAddressError(text.to_owned());
        let parts: Vec<&str> = text.split('/').collect();
        let (host, namespace, kind) = match parts[..] {
            [kind] => (HOST, NAMESPACE, kind),
            [namespace, kind] => (HOST, namespace, kind),
            [host, namespace, kind] => (host, namespace, kind),
            _ => return Err(failed()),
        };
        // A part is a name of a folder and of a path of a URL, so it can neither be empty nor lead elsewhere.
        let is_name = |part: &str| {
            let allowed =
                part.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-' || it == b'_');
            !part.is_empty() && part.len() <= 64 && allowed && !part.starts_with('-') && !part.ends_with('-')
        };
        let is_host = {
            let (name, port) = host.split_once(':').unwrap_or((host, "443"));
            (name.contains('.') || name == "localhost")
                && name.split('.').all(is_name)
                && port.parse::<u16>().is_ok_and(|port| port > 0)
        };
        let kind_is_bare = !kind.starts_with("terraform-provider-");
        if !is_host || !is_name(namespace) || !is_name(kind) || !kind_is_bare {
            return Err(failed());
        }
        Ok(Self { host: host.to_owned(), namespace: namespace.to_owned(), kind: kind.to_owned() })
    }
}

impl ProviderAddress {
    /// The address as people write it: without the host where that is the default one.
    pub fn short(&self) -> String {
        if self.host == HOST { format!("{}/{}", self.namespace, self.kind) } else { self.to_string() }
    }
}

impl fmt::Display for ProviderAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.host, self.namespace, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_defaults() {
        for (text, full, short) in [
            ("random", "registry.terraform.io/hashicorp/random", "hashicorp/random"),
            ("stoa/frame", "registry.terraform.io/stoa/frame", "stoa/frame"),
            ("localhost:8443/a/b", "localhost:8443/a/b", "localhost:8443/a/b"),
            ("example.org/a_1/b-2", "example.org/a_1/b-2", "example.org/a_1/b-2"),
        ] {
            let address = text.parse::<ProviderAddress>().unwrap();
            assert_eq!((address.to_string().as_str(), address.short().as_str()), (full, short));
            assert_eq!(address.short().parse(), Ok(address));
        }
    }

    #[test]
    fn addresses_lead_nowhere_else() {
        for text in [
            "",
            "/",
            "a//b",
            "a/b/c/d",
            "..",
            "../a",
            "example.org/../a",
            "nohost/a/b",
            "A/b",
            "a.b",
            "-a",
            "a-",
            "example.org:0/a/b",
            "example.org:x/a/b",
            "example..org/a/b",
            "a/terraform-provider-b",
            "a b",
            "é",
        ] {
            assert!(text.parse::<ProviderAddress>().is_err(), "{text}");
        }
    }
}
