//! Pages of computed objects: one namespace after the other.

use stoa_machinery::{ApiError, registry::PageRequest};

/// A limited number of objects after a position, a namespace and a name. Without a namespace, the page is of `all` namespaces,
/// which are in order.
pub(crate) async fn page<T, F: Future<Output = Result<Vec<T>, ApiError>>>(
    all: impl FnOnce() -> Result<Vec<String>, ApiError>,
    request: PageRequest<'_>,
    of_namespace: impl Fn(String, Option<String>, usize) -> F,
) -> Result<Vec<T>, ApiError> {
    let PageRequest { namespace, after, most, .. } = request;
    let namespaces = match namespace.filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => vec![namespace.to_owned()],
        None => all()?,
    };
    let mut found = Vec::new();
    for namespace in namespaces {
        let after = match after {
            Some((of, _)) if of > namespace.as_str() => continue,
            Some((of, name)) if of == namespace => Some(name.to_owned()),
            Some(_) | None => None,
        };
        let left = most - found.len();
        if left == 0 {
            break;
        }
        found.extend(of_namespace(namespace, after, left).await?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use stoa_machinery::Version;

    use super::*;

    #[tokio::test]
    async fn page_continues_in_the_next_namespace() {
        let numbers = async |namespace: Option<&str>, after: Option<(&str, &str)>, most: usize| {
            let all = || Ok(["a", "b", "c"].map(str::to_owned).into());
            let of_namespace = |namespace: String, after: Option<String>, most: usize| async move {
                let left = ["1", "2"].into_iter().filter(|name| after.as_deref().is_none_or(|after| *name > after));
                Ok(left.take(most).map(|name| format!("{namespace}{name}")).collect::<Vec<String>>())
            };
            let request = PageRequest { namespace, after, most, version: Version(1) };
            page(all, request, of_namespace).await.unwrap()
        };
        assert_eq!(numbers(None, None, 3).await, ["a1", "a2", "b1"]);
        assert_eq!(numbers(Some(""), Some(("b", "1")), 9).await, ["b2", "c1", "c2"]);
        assert_eq!(numbers(Some("b"), Some(("b", "1")), 9).await, ["b2"]);
        assert_eq!(numbers(None, Some(("aa", "9")), 1).await, ["b1"]);
    }
}
