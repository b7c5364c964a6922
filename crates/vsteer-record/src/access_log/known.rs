//! Formats with a name, and the shapes by which logs are recognised.
//!
//! Sources: mod_log_config (httpd 2.4), ngx_http_log_module (nginx 1.26), Tomcat's AccessLogValve (9 and 10.1), HAProxy's
//! "HTTP log format" (2.8), AWS "Access logs for your Application Load Balancer", Envoy and Istio "Access logging", Traefik 3
//! "Access logs".

use super::Sure;
use super::pattern::Pattern;
use crate::unit::Unit;
use vsteer_core::Fault;

/// A format of text lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Server {
    /// As `--format` accepts it; several shapes may have one name.
    pub name: &'static str,
    text: &'static str,
    /// Where the text cannot say it.
    unit: Option<Unit>,
    /// Does the date say when the request ended, although this syntax has only dates of its start?
    is_end: bool,
    /// How sure the unit is if nobody named the format.
    pub sure: Sure,
    /// Why the unit is what it is.
    pub about: &'static str,
}

impl Server {
    /// How to read its lines.
    ///
    /// # Errors
    /// None in practice: a test parses all.
    pub fn pattern(&self) -> Result<Pattern, Fault> {
        let pattern = Pattern::parse(self.text)?;
        let pattern = self.unit.map_or(pattern.clone(), |unit| pattern.with_unit(unit));
        Ok(if self.is_end { pattern.with_dates_at_end() } else { pattern })
    }

    /// The text for people.
    pub fn text(&self) -> &'static str {
        self.text
    }
}

const APACHE: &str =
    "the last number may be us (Apache's %D), ms (Tomcat's %D before 10.1) or s (Apache's %T)";
const NGINX: &str = "$request_time of nginx is in seconds";

const fn apache(text: &'static str, name: &'static str) -> Server {
    Server { name, text, unit: None, is_end: false, sure: Sure::Assumed, about: APACHE }
}

const fn known(name: &'static str, text: &'static str, about: &'static str) -> Server {
    Server { name, text, unit: None, is_end: false, sure: Sure::Known, about }
}

/// All, those that are more particular first.
pub(super) const SERVERS: [Server; 22] = [
    apache(r#"%h %l %u %t "%r" %>s %b %D"#, "apache"),
    apache(r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i" %D"#, "apache-combined"),
    apache(r#"%v %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i" %D"#, "apache-vhost"),
    apache(r#"%v %h %l %u %t "%r" %>s %b %D"#, "apache-vhost"),
    known(
        "apache-combined",
        r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i" %T/%D"#,
        "%D of Apache is in microseconds",
    ),
    known("apache", r#"%h %l %u %t "%r" %>s %b %T/%D"#, "%D of Apache is in microseconds"),
    known(
        "nginx",
        r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $request_time"#,
        NGINX,
    ),
    known(
        "nginx",
        r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$request_time""#,
        NGINX,
    ),
    known(
        "nginx",
        r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" rt=$request_time $rest"#,
        NGINX,
    ),
    known(
        "nginx",
        r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $request_time $rest"#,
        NGINX,
    ),
    known(
        "nginx",
        r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$http_x_forwarded_for" $request_time"#,
        NGINX,
    ),
    known(
        "nginx",
        r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$http_x_forwarded_for" $request_time $rest"#,
        NGINX,
    ),
    known(
        "nginx",
        r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent $request_time"#,
        NGINX,
    ),
    Server {
        unit: Some(Unit::Milliseconds),
        is_end: true,
        ..known("tomcat", r#"%h %l %u %t "%r" %s %b %D"#, "%D of Tomcat before 10.1 is in milliseconds")
    },
    Server {
        unit: Some(Unit::Milliseconds),
        is_end: true,
        ..known(
            "tomcat",
            r#"%h %l %u %t "%r" %s %b "%{Referer}i" "%{User-Agent}i" %D"#,
            "%D of Tomcat before 10.1 is in milliseconds",
        )
    },
    known(
        "haproxy",
        "%CLIENT% [%START_TIME%] %FRONTEND% %BACKEND% %TR%/%TW%/%TC%/%TS%/%DURATION% %REST%",
        "HAProxy writes milliseconds",
    ),
    known(
        "haproxy",
        "%CLIENT% [%START_TIME%] %FRONTEND% %BACKEND% %TW%/%TC%/%DURATION% %REST%",
        "HAProxy writes milliseconds",
    ),
    known(
        "alb",
        "$type $time_iso8601 $elb $client $target $request_time $request_time $request_time $rest",
        "a load balancer of AWS writes seconds",
    ),
    known(
        "alb",
        "$time_iso8601 $elb $client $target $request_time $request_time $request_time $rest",
        "a load balancer of AWS writes seconds",
    ),
    known(
        "envoy",
        r#"[%START_TIME%] "%METHOD% %PATH% %PROTOCOL%" %CODE% %FLAGS% %RECEIVED% %SENT% %DURATION% %REST%"#,
        "Envoy writes milliseconds",
    ),
    known(
        "istio",
        r#"[%START_TIME%] "%METHOD% %PATH% %PROTOCOL%" %CODE% %FLAGS% %DETAILS% %TERMINATION% "%FAILURE%" %RECEIVED% %SENT% %DURATION% %REST%"#,
        "Istio writes milliseconds",
    ),
    known(
        "traefik",
        r#"%h %l %u %t "%r" %s %b "%{Referer}i" "%{User-Agent}i" %n "%n" "%n" %{ms}Tms"#,
        "Traefik writes milliseconds",
    ),
];

/// Names that do not stand for a pattern.
pub(super) const OTHERS: [&str; 2] = ["json", "iis"];

/// Formats without a duration, recognised only to say what is missing.
pub(super) const WITHOUT_DURATION: [&str; 3] = [
    r#"%h %l %u %t "%r" %>s %b"#,
    r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i""#,
    r#"%v %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i""#,
];

/// All names, as `--format` accepts them.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = SERVERS.iter().map(|server| server.name).chain(OTHERS).collect();
    let mut seen = Vec::new();
    names.retain(|name| {
        let is_new = !seen.contains(name);
        seen.push(*name);
        is_new
    });
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_formats() {
        for server in SERVERS {
            server.pattern().unwrap_or_else(|fault| panic!("{}: {fault}", server.text));
        }
        for text in WITHOUT_DURATION {
            assert!(Pattern::parse(text).unwrap_err().to_string().contains("how long"));
            Pattern::without_duration(text).unwrap();
        }
        assert_eq!(names()[..3], ["apache", "apache-combined", "apache-vhost"]);
    }
}
