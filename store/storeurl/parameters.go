package storeurl

import (
	"net/url"
	"strings"
)

// prefixOf is what goes before the keys in a bucket or a container.
func prefixOf(u *url.URL) string {
	return strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/")
}

func endpointOf(u *url.URL, query url.Values) (string, error) {
	raw := query.Get("endpoint")
	if raw == "" {
		return "", nil
	}
	endpoint, err := url.Parse(raw)
	switch {
	case err == nil && endpoint.User != nil:
		return "", bad(u, "the endpoint has a user or a password in it; credentials come from the environment or a profile, never from a URL")
	case err != nil || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "":
		return "", bad(u, "the endpoint is no URL of the form http://HOST:PORT or https://HOST")
	case endpoint.RawQuery != "" || endpoint.Fragment != "":
		return "", bad(u, "the endpoint has parameters or a fragment; the parameters of the store's URL come after an &, not a ?")
	}
	return raw, checkCloud(u, endpoint)
}

// boolean gives nil if the URL does not say.
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

// overTLS reports that what is sent to a URL cannot be read on its way.
func overTLS(rawurl string) bool {
	return strings.HasPrefix(strings.ToLower(rawurl), "https://")
}
