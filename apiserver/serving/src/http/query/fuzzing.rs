//! Properties of targets and queries of requests.

use std::time::Duration;

use http::{Method, Uri};
use stoa_meta::{
    authorizer::Attributes,
    fuzzing::{lines, refused},
};
use stoa_registry::registry;

use super::Query;
use crate::http::RequestInfo;

/// The first line is a request's target, the second a query.
pub(crate) fn queries(data: &[u8]) {
    let lines = lines(data);
    let (target, query) = (&lines[0], Query::parse(lines.get(1).map_or("", String::as_str)));
    if let Ok(uri) = target.parse::<Uri>() {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            let info = RequestInfo::new(&method, &uri);
            let attributes = Attributes::from(&info);
            assert_eq!(attributes.verb, info.verb);
            // What is authorized is what is served: the parts say the same as the names.
            if info.is_resource_request {
                assert_eq!(info.parts.first(), Some(&info.resource));
                let in_path = info.parts.get(1).filter(|name| !name.is_empty());
                // A field selector for one name names it, too.
                assert!(in_path.is_none_or(|name| *name == info.name), "{info:?}");
            } else {
                assert!(attributes.resource.is_empty() && attributes.name.is_empty());
            }
        }
    }
    let outcomes = [
        query.list().map(drop),
        query.watch(Duration::from_secs(1)).map(drop),
        query.write("CreateOptions").map(drop),
        query.write("PatchOptions").map(drop),
        query.apply().map(drop),
        query.include_object().map(drop),
        query.delete().and_then(|options| registry::check_delete(&options).map(drop)),
    ];
    for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        refused(error, &[400, 422]);
    }
    query.write_options_sent();
    // A query that is written anew says the same.
    let encode =
        |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
    let pairs = query.clone().into_pairs();
    let written: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    assert_eq!(Query::parse(&written.join("&")), query);
}
