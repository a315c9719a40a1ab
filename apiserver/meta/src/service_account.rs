//! Service accounts as users: their user names and groups.
//!
//! Follows `k8s.io/apiserver/pkg/authentication/serviceaccount`.

use crate::content;

const PREFIX: &str = "system:serviceaccount:";
/// The group of all service accounts; that of those in a namespace has its name behind a colon.
const GROUP: &str = "system:serviceaccounts";

/// The user name of a service account.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}:{name}")
}

/// The groups of a service account of that namespace, besides the one that everybody is in who is known.
pub fn groups(namespace: &str) -> Vec<String> {
    vec![GROUP.to_owned(), format!("{GROUP}:{namespace}")]
}

/// The namespace and name of the service account that a user is, if it is one.
pub fn of_user(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(PREFIX)?.split_once(':')?;
    let good = content::dns_label(namespace).is_empty() && content::dns_subdomain(name).is_empty();
    good.then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_name_identifies_service_account() {
        assert_eq!(of_user(&user_name("shop", "web.a")), Some(("shop", "web.a")));
        for other in
            ["ann", "system:serviceaccount:shop", "system:serviceaccount:Shop:web", "system:serviceaccount:shop:"]
        {
            assert_eq!(of_user(other), None, "{other}");
        }
        assert_eq!(groups("shop"), ["system:serviceaccounts", "system:serviceaccounts:shop"]);
    }
}
