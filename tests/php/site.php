<?php
/**
 * A stand-in for a WordPress site: of its documented functions those that docs/wordpress.md calls.
 *
 * php site.php FOLDER NOW ACTION [ARGUMENT…] loads the site's plugins and themes, does one thing at the time NOW, and prints JSON. All
 * else is kept in FOLDER between runs.
 */

error_reporting(E_ALL);
set_error_handler(function ($number, $text, $file, $line) {
    if (error_reporting() & $number) { // not silenced by @
        throw new ErrorException($text, 0, $number, $file, $line);
    }
    return false;
});

const MINUTE_IN_SECONDS = 60;
const DAY_IN_SECONDS    = 86400;

define('PHOTO_GALLERY_LICENSES', getenv('PHOTO_GALLERY_LICENSES')); // as a wp-config.php may

$site = (object) array('folder' => $argv[1], 'now' => (int) $argv[2], 'filters' => array(), 'checkers' => array());

// --- filters and options ----------------------------------------------------------------------

function add_filter($tag, $callback, $priority = 10, $accepted = 1) {
    $GLOBALS['site']->filters[$tag][$priority][] = array($callback, $accepted);
}

function apply_filters($tag, $value, ...$more) {
    $found = $GLOBALS['site']->filters[$tag] ?? array();
    ksort($found);
    foreach (array_merge(...$found) as list($callback, $accepted)) {
        $value = $callback(...array_slice(array($value, ...$more), 0, $accepted));
    }
    return $value;
}

function stored_options() {
    $file = $GLOBALS['site']->folder . '/options';
    return is_file($file) ? unserialize(file_get_contents($file)) : array();
}

function get_option($name, $default = false) {
    return stored_options()[$name] ?? $default;
}

function update_option($name, $value, $autoload = null) {
    $options = array($name => $value) + stored_options();
    file_put_contents($GLOBALS['site']->folder . '/options', serialize($options));
    return true;
}

// --- the site ---------------------------------------------------------------------------------

function home_url() {
    return (string) get_option('home');
}

function plugin_basename($file) {
    return substr($file, strlen($GLOBALS['site']->folder . '/plugins/'));
}

function get_template() {
    return (string) get_option('template');
}

// --- HTTP -------------------------------------------------------------------------------------

class WP_Error {
    public $code, $message;

    public function __construct($code, $message) {
        $this->code    = $code;
        $this->message = $message;
    }
}

function is_wp_error($thing) {
    return $thing instanceof WP_Error;
}

function wp_json_encode($value) {
    return json_encode($value);
}

/** Adds parameters to an address, and encodes nothing. */
function add_query_arg($parameters, $url) {
    foreach ($parameters as $name => $value) {
        $url .= (strpos($url, '?') === false ? '?' : '&') . "$name=$value";
    }
    return $url;
}

function send_request($method, $url, $options) {
    // The last of these is added by the vendor's proxy: requests from loopback itself are never too many.
    $headers = array('User-Agent: WordPress/6.7; ' . home_url(), 'Connection: close', 'X-Forwarded-For: 198.51.100.7');
    foreach ($options['headers'] ?? array() as $name => $value) {
        $headers[] = "$name: $value";
    }
    $http = array(
        'method' => $method, 'header' => $headers, 'content' => $options['body'] ?? '', 'ignore_errors' => true,
        'timeout' => $options['timeout'] ?? 5,
    );
    $body = @file_get_contents($url, false, stream_context_create(array('http' => $http)));
    if ($body === false) {
        return new WP_Error('http_request_failed', 'cURL error 7');
    }
    $found = array();
    foreach ($http_response_header as $line) {
        if (preg_match('#^HTTP/\S+ (\d+) ?(.*)$#', $line, $parts)) {
            $response = array('code' => (int) $parts[1], 'message' => $parts[2]);
            $found    = array();
        } else {
            list($name, $value)        = explode(':', $line, 2);
            $found[strtolower($name)] = trim($value);
        }
    }
    return array('headers' => $found, 'response' => $response, 'body' => $body);
}

function wp_remote_get($url, $options = array()) {
    return send_request('GET', $url, $options);
}

function wp_remote_post($url, $options = array()) {
    return send_request('POST', $url, $options);
}

function wp_remote_retrieve_response_code($response) {
    return is_wp_error($response) ? '' : $response['response']['code'];
}

function wp_remote_retrieve_body($response) {
    return is_wp_error($response) ? '' : $response['body'];
}

// --- updates ----------------------------------------------------------------------------------

/** What pages show as available: what each library has put there, by the name of the plugin or theme. */
function available_updates() {
    $found = array();
    foreach ($GLOBALS['site']->checkers as $checker) {
        if (($update = $checker->getUpdate()) !== null) {
            $found[$checker->name] = array('type' => $checker->type) + $checker->shown($update);
        }
    }
    return $found;
}

/** Download a file, as the upgrader does: only a 200 counts, and `Content-MD5` must be that of the file. */
function download($url) {
    $response = wp_remote_get($url);
    if (is_wp_error($response)) {
        return $response;
    }
    if ($response['response']['code'] !== 200) {
        return new WP_Error('http_404', $response['response']['message']);
    }
    $told = $response['headers']['content-md5'] ?? '';
    $raw  = strlen($told) === 32 ? pack('H*', $told) : (strlen($told) === 24 ? base64_decode($told) : null);
    if ($raw !== null && $raw !== md5($response['body'], true)) {
        return new WP_Error('md5_mismatch', 'The checksum of the file does not match the expected checksum value.');
    }
    return array('body' => $response['body'], 'is_checked' => $raw !== null);
}

/** Install the update of a plugin or theme that pages show; a package is its main file. */
function upgrade($name) {
    $update = available_updates()[$name] ?? null;
    if ($update === null) {
        return array('error' => 'up_to_date');
    }
    $extra   = array($update['type'] => $name, 'temp_backup' => array('slug' => $name, 'dir' => $update['type'] . 's'));
    $options = array('package' => $update['package'] ?? '', 'clear_destination' => true, 'hook_extra' => $extra);
    $options = apply_filters('upgrader_package_options', $options);
    if (empty($options['package'])) {
        return array('error' => 'no_package');
    }
    $file = download($options['package']);
    if (is_wp_error($file)) {
        return array('error' => $file->code, 'message' => $file->message);
    }
    foreach ($GLOBALS['site']->checkers as $checker) {
        if ($checker->name === $name) {
            file_put_contents($checker->file, $file['body']);
            return array('installed' => $checker->getInstalledVersion(), 'is_checked' => $file['is_checked']);
        }
    }
}

// --- one request ------------------------------------------------------------------------------

function act($action, $arguments) {
    global $site;
    switch ($action) {
        case 'set':
            return update_option($arguments[0], json_decode($arguments[1], true));
        case 'get':
            return get_option($arguments[0]);
        case 'check': // a visit or cron, when so many seconds may pass between two checks
            foreach ($site->checkers as $checker) {
                $checker->maybeCheckForUpdates((int) $arguments[0]);
            }
            return available_updates();
        case 'show':
            return available_updates();
        case 'upgrade':
            return upgrade($arguments[0]);
        case 'download':
            $file = download($arguments[0]);
            return is_wp_error($file) ? array('error' => $file->code, 'message' => $file->message) : array('is_checked' => $file['is_checked']);
        case 'options': // for something else that is installed
            return apply_filters('upgrader_package_options', json_decode($arguments[0], true));
        case 'call':
            return $arguments[0](...array_map('json_decode', array_slice($arguments, 1)));
    }
    throw new Exception("no action $action");
}

foreach (array_merge(glob($site->folder . '/plugins/*/*.php'), glob($site->folder . '/themes/*/functions.php')) as $file) {
    if (preg_match('/^ \* Plugin Name:/m', file_get_contents($file)) || basename($file) === 'functions.php') {
        require $file;
    }
}
echo json_encode(act($argv[3], array_slice($argv, 4)), JSON_THROW_ON_ERROR), "\n";
