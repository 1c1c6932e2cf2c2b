package storeurl

import (
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
)

var driveLetter = onDemand(`^/[A-Za-z]:(/|$)`)

// localPath returns a file URL's path in the machine's form: file:///C:/dir is C:\dir on
// Windows.
func localPath(u *url.URL) (string, error) {
	switch {
	case u.Path == "":
		return "", bad(u, "there is no directory: write file:///DIR")
	case runtime.GOOS != "windows":
		return u.Path, nil
	case !driveLetter().MatchString(u.Path):
		return "", bad(u, "there is no drive letter: write file:///C:/DIR")
	}
	dir := strings.TrimPrefix(u.Path, "/")
	if strings.HasSuffix(dir, ":") {
		dir += "/" // C: alone is the working directory of that drive
	}
	return filepath.FromSlash(dir), nil
}
