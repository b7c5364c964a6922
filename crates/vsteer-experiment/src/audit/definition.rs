//! Which values does libvirt's XML definition of a VM contain?
//!
//! Reads elements and attributes in the form that libvirt writes. Truncated or odd text is read as far as possible
//! and never an error. Source: libvirt's formatdomain. Left out: namespaces, CDATA and comments, which libvirt does
//! not write.

/// The texts of elements of this name, from tag to tag.
pub fn elements<'a>(xml: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    let mut out = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.find(&open) {
        let body = &rest[at..];
        // <vcpu is not <vcpupin.
        let is_it = body[open.len()..].starts_with(|c: char| c.is_whitespace() || c == '>' || c == '/');
        let end = match body.find('>') {
            Some(e) if body[..e].ends_with('/') => e + 1,
            Some(_) => body.find(&close).map_or(body.len(), |e| e + close.len()),
            None => body.len(),
        };
        if is_it {
            out.push(&body[..end]);
        }
        rest = &body[if is_it { end } else { open.len() }..];
    }
    out
}

/// Attribute `name` of the first element with this name.
pub fn attribute<'a>(xml: &'a str, element: &str, name: &str) -> Option<&'a str> {
    let tag = elements(xml, element).into_iter().next()?;
    let tag = &tag[..tag.find('>')?];
    let value = tag.split(&format!(" {name}=")).nth(1)?;
    let quote = value.chars().next().filter(|c| "'\"".contains(*c))?;
    value[1..].split(quote).next()
}

/// Text in the first element of this name.
pub fn content<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let element = elements(xml, name).into_iter().next()?;
    element.split_once('>')?.1.split('<').next().map(str::trim)
}

/// The definition without its metadata, in which applications keep what they like, also elements of libvirt's names.
fn without_metadata(xml: &str) -> String {
    const END: &str = "</metadata>";
    match (xml.find("<metadata"), xml.rfind(END)) {
        (Some(from), Some(to)) if from < to => [&xml[..from], &xml[to + END.len()..]].concat(),
        _ => xml.to_owned(),
    }
}

/// The definition reduced to what the checks read. The rest may contain display passwords, commands and metadata,
/// and people send captured trees to others.
pub fn reduced(xml: &str) -> String {
    let xml = without_metadata(xml);
    let xml = xml.as_str();
    // A truncated element is dropped, because it could be misread together with the text that follows.
    let whole = |element: &&str| element.ends_with('>');
    let of = |xml: &str, name: &str, most: usize| -> String {
        let found = elements(xml, name).into_iter().take(most).filter(whole);
        found.map(|element| format!("  {element}\n")).collect()
    };
    let parts = |name: &str, inner: &[&str]| -> String {
        let within = |element: &str| {
            let open = &element[..=element.find('>')?];
            let inner: String = inner.iter().map(|i| of(element, i, 1)).collect();
            (!open.ends_with("/>")).then(|| format!("  {open}\n{inner}  </{name}>\n"))
        };
        elements(xml, name).into_iter().filter_map(within).collect()
    };
    let first: String =
        ["name", "uuid", "memory", "currentMemory", "vcpu"].iter().map(|name| of(xml, name, 1)).collect();
    let (pins, interfaces) =
        (of(xml, "vcpupin", usize::MAX), parts("interface", &["mac", "model", "driver"]));
    format!("<domain>\n{first}{pins}{interfaces}{}</domain>\n", parts("disk", &["driver", "target"]))
}

/// Name of the VM.
pub fn name_of(xml: &str) -> Option<&str> {
    content(xml, "name")
}

/// Number of vCPUs that the VM starts with.
pub fn vcpus_of(xml: &str) -> usize {
    let most = || content(xml, "vcpu")?.parse().ok();
    attribute(xml, "vcpu", "current").and_then(|n| n.parse().ok()).or_else(most).unwrap_or(1)
}
