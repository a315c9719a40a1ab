//! Times as Go's `time.Parse` reads RFC 3339, in which upstream reads all it is sent.

pub(super) use stoa_cel::go::time::parse;

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn what_types_make_of_it_is_read_as_well() {
        for text in [
            "2020-01-02T3:04:05,25+01:30",
            "0000-01-01T00:00:00+24:00",
            "9999-12-31T23:59:59Z",
            "2020-02-29T23:59:59.5+24:00",
        ] {
            let whole = parse(text).unwrap();
            let time = Time(whole.parse().expect(text));
            let written = serde_json::to_value(&time).unwrap();
            assert!(parse(written.as_str().unwrap()).is_ok(), "{written}");
            assert!(serde_json::from_value::<Time>(written).is_ok(), "{whole}");
        }
    }
}
