package storeurl

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// prefixOf returns the prefix of keys in a bucket or a container.
func prefixOf(u *url.URL) string {
	return strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/")
}

func endpointOf(u *url.URL, query url.Values) (string, error) {
	raw := query.Get("endpoint")
	if raw == "" {
		return "", nil
	}
	endpoint, why := parseEndpoint(raw)
	if why != "" {
		return "", bad(u, why)
	}
	return raw, checkCloud(u, endpoint)
}

// parseEndpoint parses the endpoint of a store, or says why it is invalid.
func parseEndpoint(raw string) (endpoint *url.URL, why string) {
	endpoint, err := url.Parse(raw)
	switch {
	case err == nil && endpoint.User != nil:
		return nil, "the endpoint has a user or a password in it; credentials come from the environment or a profile, never from a URL"
	case err != nil || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Hostname() == "":
		return nil, "the endpoint is no URL of the form http://HOST:PORT or https://HOST"
	case endpoint.RawQuery != "" || endpoint.Fragment != "":
		return nil, "the endpoint has parameters or a fragment; the parameters of the store's URL come after an &, not a ?"
	}
	return endpoint, ""
}

// splits says why an endpoint that also names the bucket would split a lock into two: a
// virtual-hosted bucket, or a second bucket in the path, would change the object's key,
// compared with processes that name the bucket once.
func splits(u, endpoint *url.URL, pathStyle bool) string {
	bucket, at := u.Host, *endpoint
	path := strings.Trim(at.Path, "/")
	first, _, _ := strings.Cut(path, "/")
	switch {
	case first == bucket:
		at.Path = strings.Trim(strings.TrimPrefix(path, bucket), "/")
		if prefix := at.Path; prefix != "" {
			at.Path = ""
			return fmt.Sprintf("the path of the endpoint has the bucket and a prefix in it: write %s://%s/%s/KEY?endpoint=%s", u.Scheme, bucket, prefix, at.String())
		}
	case path == bucket || strings.HasSuffix(path, "/"+bucket):
		at.Path = "/" + strings.TrimSuffix(strings.TrimSuffix(path, bucket), "/")
	case pathStyle || net.ParseIP(at.Hostname()) != nil || !strings.HasPrefix(at.Hostname(), bucket+"."):
		return ""
	default:
		at.Host = strings.TrimPrefix(at.Host, bucket+".")
		return fmt.Sprintf("the host name of the endpoint begins with the bucket, which would be named twice: write %s://%s/KEY?endpoint=%s (with &path_style=true, the host name is taken as it is)", u.Scheme, bucket, at.String())
	}
	return fmt.Sprintf("the path of the endpoint ends with the bucket, which would be named twice: write %s://%s/KEY?endpoint=%s", u.Scheme, bucket, at.String())
}

// boolean returns nil if the parameter is not set.
func boolean(u *url.URL, query url.Values, name string) (*bool, error) {
	yes, no := true, false
	switch query.Get(name) {
	case "":
		return nil, nil //nolint:nilnil // no word on it is an answer too
	case "true":
		return &yes, nil
	case "false":
		return &no, nil
	}
	return nil, bad(u, name+" is neither true nor false")
}

// overTLS reports whether requests to a URL are encrypted.
func overTLS(rawurl string) bool {
	return strings.HasPrefix(strings.ToLower(rawurl), "https://")
}
