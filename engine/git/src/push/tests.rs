//! Comparisons of requests with refs.

use super::*;

const MAIN: &str = "refs/heads/main";
const DRAFT: &str = "refs/heads/drafts/web/v1";
const TAG: &str = "refs/tags/web/v1";

fn update(name: &str, expected: Option<Oid>, target: Option<Oid>) -> RefUpdate {
    RefUpdate { name: name.to_owned(), expected, target }
}

#[test]
fn moves_one_by_one_continue_where_they_ended() {
    let [first, draft] = ["1", "2"].map(|digit| Oid::from_str(&digit.repeat(40)).unwrap());
    let updates =
        [update(DRAFT, Some(draft), None), update(MAIN, Some(first), Some(draft)), update(TAG, None, Some(draft))];
    let names = |state: State<'_>| match state {
        State::Done => Err("done".to_owned()),
        State::Ready(left) => Ok(left.iter().map(|update| update.name.clone()).collect::<Vec<_>>()),
        State::Moved(moved) => Err(moved.iter().map(|moved| moved.name.as_str()).collect::<Vec<_>>().join(" ")),
    };
    let at = |main, tag, draft| {
        move |name: &str| match name {
            MAIN => main,
            TAG => tag,
            _ => draft,
        }
    };
    let check = |one_by_one, actual: &dyn Fn(&str) -> Option<Oid>| names(state(&updates, one_by_one, actual));
    let begin = at(Some(first), None, Some(draft));
    assert_eq!(check(true, &begin).unwrap(), [MAIN, TAG, DRAFT], "deletions are last");
    let between = at(Some(draft), None, Some(draft));
    assert_eq!(check(true, &between).unwrap(), [TAG, DRAFT]);
    assert_eq!(check(false, &between).unwrap_err(), MAIN, "all move at once, so another writer moved it");
    let withdrawn = at(Some(first), None, None);
    assert_eq!(check(true, &withdrawn).unwrap_err(), DRAFT);
    assert_eq!(check(false, &at(Some(draft), Some(draft), None)).unwrap_err(), "done");
}
