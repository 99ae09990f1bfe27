<?php
/**
 * A stand-in for plugin-update-checker 5: what its documentation says of checks, filters and what is kept.
 */

namespace YahnisElsts\PluginUpdateChecker\v5;

class Update {
    public $slug, $version, $download_url, $homepage, $tested, $requires_php, $details_url;
}

/** What is known since the last check. */
class State {
    private $option, $known;

    public function __construct($option) {
        $this->option = $option;
        $this->known  = get_option($option, array('last' => 0, 'update' => null));
    }

    public function getUpdate() {
        return $this->known['update'];
    }

    public function setUpdate($update) {
        $this->keep('update', $update);
    }

    public function timeSinceLastCheck() {
        return $GLOBALS['site']->now - $this->known['last'];
    }

    public function setLastCheckToNow() {
        $this->keep('last', $GLOBALS['site']->now);
    }

    private function keep($name, $value) {
        $this->known[$name] = $value;
        update_option($this->option, $this->known);
    }
}

class Checker {
    public $type, $name, $file;
    private $address, $slug, $state;

    public function __construct($address, $file, $slug) {
        $this->type    = basename($file) === 'functions.php' ? 'theme' : 'plugin';
        $this->name    = $this->type === 'theme' ? basename(dirname($file)) : plugin_basename($file);
        $this->file    = $this->type === 'theme' ? dirname($file) . '/style.css' : $file;
        $this->address = $address;
        $this->slug    = $slug;
        $this->state   = new State("external_updates-$slug");
    }

    public function addFilter($tag, $callback, $priority = 10, $accepted = 1) {
        add_filter("puc_$tag-{$this->slug}", $callback, $priority, $accepted);
    }

    public function addQueryArgFilter($callback) {
        $this->addFilter('query_args', $callback);
    }

    public function getUpdateState() {
        return $this->state;
    }

    public function getInstalledVersion() {
        return preg_match('/^[ *]*Version: (.+)$/m', file_get_contents($this->file), $found) ? trim($found[1]) : null;
    }

    public function maybeCheckForUpdates($period) {
        if ($this->state->timeSinceLastCheck() >= $period) {
            $this->state->setLastCheckToNow();
            $this->state->setUpdate($this->requestUpdate());
        }
    }

    public function getUpdate() {
        $update = $this->state->getUpdate();
        return $update !== null && version_compare($update->version, $this->getInstalledVersion(), '>') ? $update : null;
    }

    public function requestUpdate() {
        $query  = array('installed_version' => $this->getInstalledVersion(), 'php' => PHP_VERSION, 'locale' => 'en_US');
        $query += $this->type === 'plugin' ? array('checking_for_updates' => '1') : array();
        $url    = add_query_arg(apply_filters("puc_query_args-{$this->slug}", $query), $this->address);
        $sent   = array('timeout' => 10, 'headers' => array('Accept' => 'application/json'));
        $result = apply_filters("puc_request_metadata_http_result-{$this->slug}", wp_remote_get($url, $sent), $url, $sent);
        if (is_wp_error($result) || $result['response']['code'] !== 200) {
            return null;
        }
        $answer = json_decode($result['body']);
        foreach ($this->type === 'theme' ? array('version', 'details_url') : array('name', 'version') as $needed) {
            if (empty($answer->$needed)) {
                return null;
            }
        }
        $update = new Update();
        foreach (array_keys(get_object_vars($update)) as $name) {
            $update->$name = $answer->$name ?? null;
        }
        $update->slug = $this->slug;
        return $update;
    }

    /** What WordPress is given of an update. */
    public function shown($update) {
        $shown = array('new_version' => $update->version);
        return $shown + ($this->type === 'theme'
            ? array('url' => $update->details_url)
            : array('tested' => $update->tested, 'requires_php' => $update->requires_php)
        ) + array('package' => $update->download_url);
    }
}

class PucFactory {
    public static function buildUpdateChecker($address, $file, $slug) {
        $checker = new Checker($address, $file, $slug);
        $GLOBALS['site']->checkers[] = $checker;
        return $checker;
    }
}
