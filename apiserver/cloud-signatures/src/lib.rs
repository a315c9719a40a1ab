//! Signatures of requests: AWS's Signature Version 4, and Alibaba Cloud's ACS3-HMAC-SHA256.
//!
//! Start at [`JsonCall`] for a call of AWS, and at [`alibaba`] for one of Alibaba Cloud. Callers send the requests.
//!
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html> and
//! <https://www.alibabacloud.com/help/en/sdk/product-overview/v3-request-structure-and-signature>.

mod aws_json;

use ring::{
    digest::{SHA256, digest},
    hmac::{self, HMAC_SHA256},
};

pub use self::aws_json::{AwsKeys, JsonCall, endpoint, fault};

/// A request as signatures cover it.
pub struct Canonical<'r> {
    /// The method, such as `POST`.
    pub method: &'r str,
    /// The escaped path, such as `/`.
    pub path: &'r str,
    /// The escaped parameters, sorted.
    pub query: &'r str,
    /// The headers in lower case, sorted.
    pub headers: &'r [(&'r str, String)],
    /// The whole body.
    pub body: &'r [u8],
}

/// The service that a signature is for.
#[derive(Debug)]
pub struct Scope<'r> {
    /// The region, such as `eu-central-1`.
    pub region: &'r str,
    /// The service, such as `kms`.
    pub service: &'r str,
    /// The time, such as `20150830T123600Z`.
    pub time: &'r str,
}

impl Canonical<'_> {
    fn text(&self) -> String {
        let headers: String = self.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let (method, path, query, names, body) = (self.method, self.path, self.query, self.names(), sha256(self.body));
        format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{body}")
    }

    fn names(&self) -> String {
        self.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";")
    }
}

/// The header `Authorization` for AWS, by the id of a key and its secret.
pub fn aws(request: &Canonical<'_>, scope: &Scope<'_>, (id, secret): (&str, &str)) -> String {
    let Scope { region, service, time } = scope;
    let date = time.get(..8).unwrap_or_default();
    let scope = format!("{date}/{region}/{service}/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(request.text().as_bytes()));
    let first = hmac(format!("AWS4{secret}").as_bytes(), date);
    let key = [*region, *service, "aws4_request"].iter().fold(first, |key, part| hmac(&key, part));
    let signature = hex(&hmac(&key, &text));
    format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={}, Signature={signature}", request.names())
}

/// The header `Authorization` for Alibaba Cloud, by the id of a key and its secret.
pub fn alibaba(request: &Canonical<'_>, (id, secret): (&str, &str)) -> String {
    let text = format!("ACS3-HMAC-SHA256\n{}", sha256(request.text().as_bytes()));
    let signature = hex(&hmac(secret.as_bytes(), &text));
    format!("ACS3-HMAC-SHA256 Credential={id},SignedHeaders={},Signature={signature}", request.names())
}

/// The SHA-256 of bytes, in hex digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of AWS's documentation of Signature Version 4.
    #[test]
    fn signature_agrees_with_the_example_of_aws() {
        let headers = [
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8".to_owned()),
            ("host", "iam.amazonaws.com".to_owned()),
            ("x-amz-date", "20150830T123600Z".to_owned()),
        ];
        let query = "Action=ListUsers&Version=2010-05-08";
        let request = Canonical { method: "GET", path: "/", query, headers: &headers, body: b"" };
        let scope = Scope { region: "us-east-1", service: "iam", time: "20150830T123600Z" };
        let keys = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let canonical = sha256(request.text().as_bytes());
        assert_eq!(canonical, "f536975d06c0309214f805bb90ccff089219ecd68b2577efef23edd43b7e1a59");
        let expected = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
                        SignedHeaders=content-type;host;x-amz-date, \
                        Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7";
        assert_eq!(aws(&request, &scope, keys), expected);
    }

    /// The fixed example of Alibaba Cloud's documentation of version 3 of its signatures.
    #[test]
    fn signature_agrees_with_the_example_of_alibaba_cloud() {
        let headers = [
            ("host", "ecs.cn-shanghai.aliyuncs.com".to_owned()),
            ("x-acs-action", "RunInstances".to_owned()),
            ("x-acs-content-sha256", sha256(b"")),
            ("x-acs-date", "2023-10-26T10:22:32Z".to_owned()),
            ("x-acs-signature-nonce", "3156853299f313e23d1673dc12e1703d".to_owned()),
            ("x-acs-version", "2014-05-26".to_owned()),
        ];
        let query = "ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd&RegionId=cn-shanghai";
        let request = Canonical { method: "POST", path: "/", query, headers: &headers, body: b"" };
        let canonical = sha256(request.text().as_bytes());
        assert_eq!(canonical, "7ea06492da5221eba5297e897ce16e55f964061054b7695beedaac1145b1e259");
        let signed = alibaba(&request, ("YourAccessKeyId", "YourAccessKeySecret"));
        let signature = "Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0";
        assert!(signed.ends_with(signature), "{signed}");
    }
}
