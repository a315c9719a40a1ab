//! The file that tells kubectl and client libraries where a server is and who they are.

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::IssuedCertificate;

/// A kubeconfig with one cluster, one user and one context, which is the current one.
///
/// Everything is in the file itself, so it can be copied; it holds the private key and is written with
/// [`files::write_private`](crate::files::write_private).
#[derive(Debug)]
pub struct Kubeconfig<'a> {
    /// The name of the cluster, its user and the context, such as `stoa`.
    pub name: &'a str,
    /// The server's URL, such as `https://127.0.0.1:6443`.
    pub server: &'a str,
    /// The CA that signed the server's certificate, as PEM.
    pub ca_pem: &'a str,
    /// The client's certificate and key.
    pub client: &'a IssuedCertificate,
    /// The namespace to use when none is named; empty for `default`.
    pub namespace: &'a str,
}

impl Kubeconfig<'_> {
    /// The file's contents, as YAML.
    pub fn render(&self) -> String {
        let name = quote(self.name);
        let mut namespace = String::new();
        if !self.namespace.is_empty() {
            namespace = format!("\n    namespace: {}", quote(self.namespace));
        }
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: {name}\n  cluster:\n    server: {server}\n    certificate-authority-data: {ca}\n\
             users:\n\
             - name: {name}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n\
             contexts:\n\
             - name: {name}\n  context:\n    cluster: {name}\n    user: {name}{namespace}\n\
             current-context: {name}\n",
            server = quote(self.server),
            ca = BASE64_STANDARD.encode(self.ca_pem),
            certificate = BASE64_STANDARD.encode(&self.client.certificate_pem),
            key = BASE64_STANDARD.encode(&self.client.key_pem),
        )
    }
}

/// A string as YAML: every JSON string is one.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn kubeconfig_contains_server_identity_and_context() {
        let client = IssuedCertificate { certificate_pem: "CERT\n".to_owned(), key_pem: "KEY\n".to_owned() };
        let text = Kubeconfig {
            name: "st\"oa: #1",
            server: "https://127.0.0.1:6443",
            ca_pem: "CA\n",
            client: &client,
            namespace: "shop",
        }
        .render();
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        let name = "st\"oa: #1";
        assert_eq!(
            read,
            json!({
                "apiVersion": "v1", "kind": "Config", "current-context": name,
                "clusters": [{"name": name, "cluster": {
                    "server": "https://127.0.0.1:6443", "certificate-authority-data": "Q0EK"}}],
                "users": [{"name": name, "user": {
                    "client-certificate-data": "Q0VSVAo=", "client-key-data": "S0VZCg=="}}],
                "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "shop"}}],
            })
        );
    }
}
