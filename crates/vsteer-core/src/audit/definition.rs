//! What does libvirt's definition of a VM say, read as text?
//!
//! Elements and attributes as libvirt itself writes them; what is cut off or odd is read as far as it goes, and never a fault. Source: libvirt's
//! formatdomain. Left out: namespaces, CDATA and comments, which libvirt does not write.

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

/// An attribute of the first element of this name.
pub fn attribute<'a>(xml: &'a str, element: &str, name: &str) -> Option<&'a str> {
    let tag = elements(xml, element).into_iter().next()?;
    let tag = &tag[..tag.find('>')?];
    let value = tag.split(&format!(" {name}=")).nth(1)?;
    let quote = value.chars().next().filter(|c| "'\"".contains(*c))?;
    value[1..].split(quote).next()
}

/// The text in the first element of this name.
pub fn content<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let element = elements(xml, name).into_iter().next()?;
    element.split_once('>')?.1.split('<').next().map(str::trim)
}

/// The VM's name.
pub fn name_of(xml: &str) -> Option<&str> {
    content(xml, "name")
}

/// vCPUs that it starts with.
pub fn vcpus_of(xml: &str) -> usize {
    let most = || content(xml, "vcpu")?.parse().ok();
    attribute(xml, "vcpu", "current").and_then(|n| n.parse().ok()).or_else(most).unwrap_or(1)
}
