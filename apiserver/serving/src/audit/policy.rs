//! `audit.k8s.io/v1 Policy`: the level of each request, by the first rule that matches.
//!
//! Follows `k8s.io/apiserver/pkg/audit/policy`.

use std::{io, path::Path};

use serde::Deserialize;
use stoa_meta::{
    request::UserInfo,
    schema::{self, Format},
};

use super::{
    WITHOUT_BODIES,
    event::{Level, Stage},
};
use crate::http::RequestInfo;

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("failed to read file path")]
    Read(#[source] io::Error),
    /// It is no YAML or JSON, or not of the policy's shape.
    #[error("failed decoding: {0}")]
    Decode(String),
    /// It is of another kind or version.
    #[error("unknown group version field {0:?} in policy")]
    Version(String),
    /// It has no rules.
    #[error("loaded illegal policy with 0 rules")]
    Empty,
    /// A rule is about resources and paths at once.
    #[error(
        "rules[{0}].nonResourceURLs: Invalid value: rules cannot apply to both regular resources and non-resource URLs"
    )]
    Both(usize),
    /// A path has a `*` that is not at its end, or does not begin with `/`.
    #[error("rules[{rule}].nonResourceURLs: Invalid value: {path:?}")]
    Path {
        /// Which rule, from 0.
        rule: usize,
        /// The path.
        path: String,
    },
}

/// Which requests are recorded.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Policy {
    api_version: String,
    kind: String,
    rules: Vec<Rule>,
    omit_stages: Vec<Stage>,
    #[serde(skip)]
    without_bodies: Vec<(&'static str, &'static str)>,
    omit_managed_fields: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) level: Level,
    pub(super) omit_stages: Vec<Stage>,
    pub(super) omit_managed_fields: bool,
}

impl Policy {
    /// Reads a policy file, YAML or JSON.
    pub fn from_file(path: &Path) -> Result<Self, PolicyError> {
        Self::parse(&std::fs::read(path).map_err(PolicyError::Read)?)
    }

    /// Reads a policy, YAML or JSON.
    pub fn parse(text: &[u8]) -> Result<Self, PolicyError> {
        let parsed = schema::parse(text, Format::Yaml).map_err(|error| PolicyError::Decode(error.to_string()))?;
        let policy: Self =
            serde_json::from_value(parsed.value).map_err(|error| PolicyError::Decode(error.to_string()))?;
        if policy.api_version != "audit.k8s.io/v1" || policy.kind != "Policy" {
            return Err(PolicyError::Version(policy.api_version));
        }
        if policy.rules.is_empty() {
            return Err(PolicyError::Empty);
        }
        for (index, rule) in policy.rules.iter().enumerate() {
            rule.validate(index)?;
        }
        Ok(policy)
    }

    /// Never records bodies of this kind either, whatever the policy says: its objects arrive with what nobody may read.
    pub fn without_bodies(mut self, group: &'static str, resource: &'static str) -> Self {
        self.without_bodies.push((group, resource));
        self
    }

    pub(super) fn evaluate(&self, user: &UserInfo, info: &RequestInfo) -> Wanted {
        let rule = self.rules.iter().find(|rule| rule.matches(user, info));
        let mut level = rule.map_or(Level::None, |rule| rule.level);
        let secret = |(group, resource): &(&str, &str)| info.group == *group && info.resource == *resource;
        if info.is_resource_request && WITHOUT_BODIES.iter().chain(&self.without_bodies).any(secret) {
            level = level.min(Level::Metadata);
        }
        let own = rule.map_or(&[][..], |rule| &rule.omit_stages);
        Wanted {
            level,
            omit_stages: self.omit_stages.iter().chain(own).copied().collect(),
            omit_managed_fields: rule.and_then(|rule| rule.omit_managed_fields).unwrap_or(self.omit_managed_fields),
        }
    }
}

impl Rule {
    fn validate(&self, index: usize) -> Result<(), PolicyError> {
        let about_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if about_resources && !self.non_resource_urls.is_empty() {
            return Err(PolicyError::Both(index));
        }
        let bad = |path: &&String| {
            let inner = path.trim_end_matches('*');
            path.as_str() != "*" && (!path.starts_with('/') || inner.contains('*'))
        };
        match self.non_resource_urls.iter().find(bad) {
            Some(path) => Err(PolicyError::Path { rule: index, path: path.clone() }),
            None => Ok(()),
        }
    }

    fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        let listed = |list: &[String], value: &str| list.is_empty() || list.iter().any(|item| item == value);
        if !listed(&self.users, &user.name) || !listed(&self.verbs, &info.verb) {
            return false;
        }
        if !self.user_groups.is_empty() && !user.groups.iter().any(|group| self.user_groups.contains(group)) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return info.is_resource_request
                && listed(&self.namespaces, &info.namespace)
                && (self.resources.is_empty() || self.resources.iter().any(|resources| resources.matches(info)));
        }
        if !self.non_resource_urls.is_empty() {
            return !info.is_resource_request
                && self.non_resource_urls.iter().any(|pattern| path_matches(&info.path, pattern));
        }
        true
    }
}

fn path_matches(path: &str, pattern: &str) -> bool {
    pattern == path || pattern.strip_suffix('*').is_some_and(|_| path.starts_with(pattern.trim_end_matches('*')))
}

impl GroupResources {
    fn matches(&self, info: &RequestInfo) -> bool {
        if self.group != info.group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let named = self.resource_names.is_empty() || self.resource_names.contains(&info.name);
        named
            && self.resources.iter().any(|pattern| match pattern.split_once('/') {
                None => pattern == "*" || (info.subresource.is_empty() && *pattern == info.resource),
                Some(("*", subresource)) => !info.subresource.is_empty() && subresource == info.subresource,
                Some((resource, "*")) => resource == info.resource,
                Some((resource, subresource)) => resource == info.resource && subresource == info.subresource,
            })
    }
}
