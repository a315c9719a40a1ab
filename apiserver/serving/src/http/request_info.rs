//! The attributes of a request by its method and path: verb, group, version, resource, namespace and name.
//!
//! Follows `k8s.io/apiserver/pkg/endpoints/request.RequestInfoFactory`. Authorization decides on
//! exactly this, so the router must not read a path in any other way.

use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use stoa_meta::{
    authorizer::Attributes,
    content,
    selector::{FieldTerms, LabelSelector},
};

use super::query::Query;

/// A request, as its method and path tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the path is one of a resource; if not, only `path` and `verb` say anything.
    pub is_resource_request: bool,
    /// The path, percent-decoded.
    pub path: String,
    /// The API verb, such as `list`; the lower-case HTTP method for paths that are no resource.
    pub verb: String,
    /// `api` or `apis`.
    pub prefix: String,
    /// The API group; empty for core.
    pub group: String,
    /// The version, such as `v1alpha1`.
    pub version: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The plural noun.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The object's name, or empty; a field selector for exactly one name counts as naming it.
    pub name: String,
    /// The path from the resource on.
    pub parts: Vec<String>,
    /// The field selector as sent, where the verb has one.
    pub field_selector: String,
    /// The label selector as sent, where the verb has one.
    pub label_selector: String,
}

impl RequestInfo {
    /// Reads a request's method and target.
    pub fn new(method: &Method, uri: &Uri) -> Self {
        let path = percent_decode_str(uri.path()).decode_utf8_lossy().into_owned();
        let mut info = Self { verb: method.as_str().to_lowercase(), ..Self::default() };
        if let Some(parts) = info.take_group_and_version(&path) {
            info.read_resource(method, &parts, &Query::parse(uri.query().unwrap_or("")));
        }
        info.path = path;
        info
    }

    /// Takes the prefix, group and version, and returns what follows; nothing when the path is no resource's.
    fn take_group_and_version<'a>(&mut self, path: &'a str) -> Option<Vec<&'a str>> {
        let mut parts = path.trim_matches('/').split('/');
        let prefix = parts.next()?;
        let group = match prefix {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let rest: Vec<_> = parts.collect();
        // `/apis/G/V/watch` names no resource to watch.
        if rest.is_empty() || (rest.len() == 1 && is_verb_prefix(rest[0])) {
            return None;
        }
        self.is_resource_request = true;
        self.prefix = prefix.to_owned();
        self.group = group.to_owned();
        self.version = version.to_owned();
        Some(rest)
    }

    fn read_resource(&mut self, method: &Method, mut parts: &[&str], query: &Query) {
        let verb_in_path = is_verb_prefix(parts[0]);
        if verb_in_path {
            self.verb = parts[0].to_owned();
            parts = &parts[1..];
        } else {
            self.verb = match *method {
                Method::POST => "create",
                Method::GET | Method::HEAD => "get",
                Method::PUT => "update",
                Method::PATCH => "patch",
                Method::DELETE => "delete",
                _ => "",
            }
            .to_owned();
        }

        if parts[0] == "namespaces" && parts.len() > 1 {
            self.namespace = parts[1].to_owned();
            // A namespace's own subresources are not resources in it.
            if parts.len() > 2 && !matches!(parts[2], "status" | "finalize") {
                parts = &parts[2..];
            }
        }

        self.parts = parts.iter().map(|&part| part.to_owned()).collect();
        self.resource = parts[0].to_owned();
        self.name = parts.get(1).copied().unwrap_or("").to_owned();
        if self.verb != "proxy" {
            self.subresource = parts.get(2).copied().unwrap_or("").to_owned();
        }

        if self.name.is_empty() && self.verb == "get" {
            self.verb = if query.flag("watch").unwrap_or(false) { "watch" } else { "list" }.to_owned();
            self.name = single_name(query).unwrap_or_default();
        }
        if self.name.is_empty() && self.verb == "delete" {
            "deletecollection".clone_into(&mut self.verb);
        }
        if !verb_in_path && matches!(&*self.verb, "list" | "watch" | "deletecollection") {
            self.field_selector = query.first("fieldSelector").unwrap_or("").to_owned();
            self.label_selector = query.first("labelSelector").unwrap_or("").to_owned();
        }
    }

    /// Whether a verb stands in the path and no resource after it, as in `/apis/G/V/watch`.
    pub(crate) fn lacks_resource(&self) -> bool {
        if self.is_resource_request {
            return false;
        }
        let mut parts = self.path.trim_matches('/').split('/');
        let before = match parts.next() {
            Some("api") => 1,
            Some("apis") => 2,
            _ => return false,
        };
        parts.nth(before).is_some_and(is_verb_prefix) && parts.next().is_none()
    }

    /// The verb that stands in the path before the resource: `watch` or `proxy`.
    pub(crate) fn verb_in_path(&self) -> Option<&str> {
        let mut parts = self.path.trim_matches('/').split('/');
        let at = if self.prefix == "api" { 2 } else { 3 };
        parts.nth(at).filter(|part| self.is_resource_request && is_verb_prefix(part))
    }

    /// What an authorizer is asked about this request.
    pub fn attributes(&self) -> Attributes {
        if !self.is_resource_request {
            return Attributes { verb: self.verb.clone(), path: self.path.clone(), ..Attributes::default() };
        }
        Attributes {
            verb: self.verb.clone(),
            group: self.group.clone(),
            version: self.version.clone(),
            resource: self.resource.clone(),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            path: self.path.clone(),
            field_selector: self.field_selector.clone(),
            label_selector: self.label_selector.clone(),
        }
    }
}

impl From<&RequestInfo> for Attributes {
    fn from(info: &RequestInfo) -> Self {
        info.attributes()
    }
}

/// Verbs that once stood in paths: `/apis/G/V/watch/stacks`.
fn is_verb_prefix(part: &str) -> bool {
    matches!(part, "watch" | "proxy")
}

/// The name that a list asks for by its field selector, if that is exactly one that fits into a path. A query that cannot
/// be read asks for none.
fn single_name(query: &Query) -> Option<String> {
    let terms = FieldTerms::parse(query.first("fieldSelector")?).ok()?;
    let name =
        terms.exact("metadata.name").filter(|name| !name.is_empty() && content::path_segment(name).is_empty())?;
    query.list().ok()?;
    LabelSelector::parse(query.first("labelSelector").unwrap_or_default()).ok()?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, target: &str, expected: &str) {
        let info = RequestInfo::new(&method.parse().unwrap(), &target.parse().unwrap());
        let got = format!(
            "{} group={} version={} ns={} resource={} subresource={} name={}",
            info.verb, info.group, info.version, info.namespace, info.resource, info.subresource, info.name
        );
        let got = if info.is_resource_request { got } else { format!("{} path={}", info.verb, info.path) };
        assert_eq!(got, expected, "{method} {target}");
    }

    #[test]
    fn resource_paths_are_read_as_upstream_reads_them() {
        for (method, target, expected) in [
            ("GET", "/apis/g.io/v1/stacks", "list group=g.io version=v1 ns= resource=stacks subresource= name="),
            (
                "GET",
                "/apis/g.io/v1/stacks?watch=1",
                "watch group=g.io version=v1 ns= resource=stacks subresource= name=",
            ),
            (
                "GET",
                "/apis/g.io/v1/stacks?watch=false",
                "list group=g.io version=v1 ns= resource=stacks subresource= name=",
            ),
            (
                "GET",
                "/apis/g.io/v1/namespaces/shop/stacks/web",
                "get group=g.io version=v1 ns=shop resource=stacks subresource= name=web",
            ),
            (
                "PUT",
                "/apis/g.io/v1/namespaces/shop/stacks/web/status",
                "update group=g.io version=v1 ns=shop resource=stacks subresource=status name=web",
            ),
            (
                "POST",
                "/apis/g.io/v1/namespaces/shop/stacks",
                "create group=g.io version=v1 ns=shop resource=stacks subresource= name=",
            ),
            ("PATCH", "/apis/g.io/v1/things/a", "patch group=g.io version=v1 ns= resource=things subresource= name=a"),
            (
                "DELETE",
                "/apis/g.io/v1/things/a",
                "delete group=g.io version=v1 ns= resource=things subresource= name=a",
            ),
            (
                "DELETE",
                "/apis/g.io/v1/things",
                "deletecollection group=g.io version=v1 ns= resource=things subresource= name=",
            ),
            ("GET", "/api/v1/namespaces", "list group= version=v1 ns= resource=namespaces subresource= name="),
            (
                "GET",
                "/api/v1/namespaces/shop",
                "get group= version=v1 ns=shop resource=namespaces subresource= name=shop",
            ),
            (
                "PUT",
                "/api/v1/namespaces/shop/finalize",
                "update group= version=v1 ns=shop resource=namespaces subresource=finalize name=shop",
            ),
            ("GET", "/api/v1/namespaces/shop/pods", "list group= version=v1 ns=shop resource=pods subresource= name="),
            (
                "GET",
                "/apis/g.io/v1/watch/namespaces/shop/stacks/web",
                "watch group=g.io version=v1 ns=shop resource=stacks subresource= name=web",
            ),
            (
                "GET",
                "/apis/g.io/v1/stacks?fieldSelector=metadata.name%3Dweb",
                "list group=g.io version=v1 ns= resource=stacks subresource= name=web",
            ),
            (
                "GET",
                "/apis/g.io/v1/stacks?fieldSelector=metadata.name%21%3Dweb",
                "list group=g.io version=v1 ns= resource=stacks subresource= name=",
            ),
            // A query that cannot be read asks for no object, nor does a name that is no part of a path.
            (
                "GET",
                "/apis/g.io/v1/stacks?fieldSelector=metadata.name%3Dweb,x",
                "list group=g.io version=v1 ns= resource=stacks subresource= name=",
            ),
            (
                "GET",
                "/apis/g.io/v1/stacks?fieldSelector=metadata.name%3Dweb&limit=x",
                "list group=g.io version=v1 ns= resource=stacks subresource= name=",
            ),
            (
                "GET",
                "/apis/g.io/v1/stacks?fieldSelector=metadata.name%3Dweb&labelSelector=a%20b&watch=1",
                "watch group=g.io version=v1 ns= resource=stacks subresource= name=",
            ),
            (
                "GET",
                "/apis/g.io/v1/stacks?fieldSelector=metadata.name%3Da/b",
                "list group=g.io version=v1 ns= resource=stacks subresource= name=",
            ),
            ("GET", "/apis/g.io/v1/", "get path=/apis/g.io/v1/"),
            ("GET", "/apis/g.io", "get path=/apis/g.io"),
            ("GET", "/apis/g.io/v1/watch", "get path=/apis/g.io/v1/watch"),
            ("GET", "/healthz", "get path=/healthz"),
            ("GET", "/", "get path=/"),
        ] {
            check(method, target, expected);
        }
    }

    #[test]
    fn encoded_slash_separates_as_a_plain_one_does() {
        // Or else authorization would see another object than the router.
        check(
            "GET",
            "/apis/g.io/v1/namespaces/shop%2Fstacks/web",
            "get group=g.io version=v1 ns=shop resource=stacks subresource= name=web",
        );
    }

    #[test]
    fn verb_in_a_path_has_a_resource_after_it() {
        for (path, lacks) in [
            ("/apis/g.io/v1/watch", true),
            ("/apis/g.io/v1/proxy/", true),
            ("/api/v1/watch", true),
            ("/apis/g.io/v1/watch/stacks", false),
            ("/apis/g.io/watch", false),
            ("/apis/g.io/v1", false),
            ("/other/v1/watch", false),
        ] {
            let info = RequestInfo::new(&Method::GET, &path.parse().unwrap());
            assert_eq!(info.lacks_resource(), lacks, "{path}");
        }
    }

    #[test]
    fn authorizer_receives_selectors_only_with_supporting_verbs() {
        let target = "/apis/g.io/v1/stacks?fieldSelector=spec.project%3Da&labelSelector=x".parse().unwrap();
        let attributes = RequestInfo::new(&Method::GET, &target).attributes();
        assert_eq!((&*attributes.field_selector, &*attributes.label_selector), ("spec.project=a", "x"));
        let attributes = RequestInfo::new(&Method::POST, &target).attributes();
        assert_eq!((&*attributes.field_selector, &*attributes.label_selector), ("", ""));
    }
}
