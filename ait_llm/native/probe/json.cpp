#include "json.h"

#include <cstring>

#include "matcher.h"

namespace ait {
namespace {

void AppendUtf8(std::string &out, unsigned code)
{
    if (code < 0x80) {
        out += static_cast<char>(code);
    } else if (code < 0x800) {
        out += static_cast<char>(0xc0 | (code >> 6));
        out += static_cast<char>(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        out += static_cast<char>(0xe0 | (code >> 12));
        out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
        out += static_cast<char>(0x80 | (code & 0x3f));
    } else {
        out += static_cast<char>(0xf0 | (code >> 18));
        out += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
        out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
        out += static_cast<char>(0x80 | (code & 0x3f));
    }
}

int HexDigit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

unsigned HexCode(const std::string &text, size_t at)
{
    unsigned code = 0;
    for (size_t i = 0; i < 4; ++i) {
        code = code * 16 + static_cast<unsigned>(HexDigit(text[at + i]));
    }
    return code;
}

} // namespace

std::string JsonQuote(const std::string &text)
{
    static const char *hex = "0123456789abcdef";
    std::string out = "\"";
    for (char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte < 0x20) {
            out += "\\u00";
            out += hex[byte >> 4];
            out += hex[byte & 15];
        } else {
            out += c;
        }
    }
    return out + "\"";
}

// Recursive descent over one text; positions only move forward.
class JsonReader {
public:
    explicit JsonReader(const std::string &text) : text_(text) {}

    bool Document(Json &value, std::string &reason)
    {
        bool good = Value(value, 0);
        SkipBlanks();
        if (good && at_ != text_.size()) {
            good = Fail("there is text after the value");
        }
        reason = reason_;
        return good;
    }

private:
    bool Fail(const char *what)
    {
        if (reason_.empty()) {
            reason_ = std::string(what) + " at byte " + std::to_string(at_);
        }
        return false;
    }

    void SkipBlanks()
    {
        while (at_ < text_.size() && strchr(" \t\r\n", text_[at_]) != nullptr &&
               text_[at_] != '\0') {
            ++at_;
        }
    }

    bool Take(char c)
    {
        SkipBlanks();
        if (at_ < text_.size() && text_[at_] == c) {
            ++at_;
            return true;
        }
        return false;
    }

    bool Value(Json &value, int depth)
    {
        if (depth >= Json::MAX_DEPTH) {
            return Fail("the nesting is too deep");
        }
        SkipBlanks();
        if (at_ >= text_.size()) {
            return Fail("the text ends early");
        }
        if (text_[at_] == '{') {
            return Container(value, Json::Kind::OBJECT, '}', depth);
        }
        if (text_[at_] == '[') {
            return Container(value, Json::Kind::ARRAY, ']', depth);
        }
        if (text_[at_] == '"') {
            value.kind_ = Json::Kind::STRING;
            return StringText(value.text_);
        }
        value.kind_ = Json::Kind::SCALAR;
        return Scalar(value.text_);
    }

    bool Container(Json &value, Json::Kind kind, char end, int depth)
    {
        value = Json(kind);
        ++at_;
        if (Take(end)) {
            return true;
        }
        do {
            if (kind == Json::Kind::OBJECT) {
                SkipBlanks();
                std::string key;
                if (!StringText(key)) {
                    return false;
                }
                if (!Take(':')) {
                    return Fail("a ':' is missing");
                }
                value.keys_.push_back(std::move(key));
            }
            value.items_.emplace_back();
            if (!Value(value.items_.back(), depth + 1)) {
                return false;
            }
        } while (Take(','));
        return Take(end) || Fail("a ',' or a closing bracket is missing");
    }

    bool StringText(std::string &raw)
    {
        const size_t begin = at_;
        if (at_ >= text_.size() || text_[at_] != '"') {
            return Fail("a string is missing");
        }
        for (++at_; at_ < text_.size(); ++at_) {
            const char c = text_[at_];
            if (c == '"') {
                ++at_;
                raw = text_.substr(begin, at_ - begin);
                return true;
            }
            if (static_cast<unsigned char>(c) < 0x20) {
                return Fail("a string holds a control character");
            }
            if (c == '\\' && !Escape()) {
                return false;
            }
        }
        return Fail("a string does not end");
    }

    bool Escape()
    {
        ++at_;
        if (at_ >= text_.size()) {
            return Fail("a string does not end");
        }
        if (text_[at_] == 'u') {
            for (int i = 0; i < 4; ++i) {
                ++at_;
                if (at_ >= text_.size() || HexDigit(text_[at_]) < 0) {
                    return Fail("a \\u escape is incomplete");
                }
            }
            return true;
        }
        return strchr("\"\\/bfnrt", text_[at_]) != nullptr || Fail("an escape is unknown");
    }

    bool Scalar(std::string &raw)
    {
        const size_t begin = at_;
        while (at_ < text_.size() && strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE",
                                            text_[at_]) != nullptr && text_[at_] != '\0') {
            ++at_;
        }
        raw = text_.substr(begin, at_ - begin);
        if (raw == "true" || raw == "false" || raw == "null" || IsNumber(raw)) {
            return true;
        }
        at_ = begin;
        return Fail("a value is expected");
    }

    static bool IsNumber(const std::string &raw)
    {
        size_t i = 0;
        const auto digits = [&]() {
            const size_t begin = i;
            while (i < raw.size() && raw[i] >= '0' && raw[i] <= '9') {
                ++i;
            }
            return i > begin;
        };
        i += !raw.empty() && raw[0] == '-' ? 1 : 0;
        const bool leadingZero = i + 1 < raw.size() && raw[i] == '0' && raw[i + 1] >= '0' &&
                                 raw[i + 1] <= '9';
        if (leadingZero || !digits()) {
            return false;
        }
        if (i < raw.size() && raw[i] == '.') {
            ++i;
            if (!digits()) {
                return false;
            }
        }
        if (i < raw.size() && (raw[i] == 'e' || raw[i] == 'E')) {
            ++i;
            i += i < raw.size() && (raw[i] == '-' || raw[i] == '+') ? 1 : 0;
            if (!digits()) {
                return false;
            }
        }
        return i == raw.size();
    }

    const std::string &text_;
    std::string reason_;
    size_t at_ = 0;
};

bool Json::Parse(const std::string &text, Json &value, std::string &reason)
{
    value = Json();
    return JsonReader(text).Document(value, reason);
}

Json Json::String(const std::string &value)
{
    Json result(Kind::STRING);
    result.text_ = JsonQuote(value);
    return result;
}

const Json *Json::Find(const std::string &key) const
{
    const std::string quoted = JsonQuote(key);
    for (size_t i = 0; i < keys_.size(); ++i) {
        if (keys_[i] == quoted) {
            return &items_[i];
        }
    }
    return nullptr;
}

void Json::Set(const std::string &key, Json value)
{
    std::string quoted = JsonQuote(key);
    for (size_t i = 0; i < keys_.size(); ++i) {
        if (keys_[i] == quoted) {
            items_[i] = std::move(value);
            return;
        }
    }
    keys_.push_back(std::move(quoted));
    items_.push_back(std::move(value));
}

std::string Json::AsString() const
{
    std::string out;
    if (kind_ != Kind::STRING) {
        return out;
    }
    for (size_t i = 1; i + 1 < text_.size(); ++i) {
        if (text_[i] != '\\') {
            out += text_[i];
            continue;
        }
        ++i;
        const char *plain = "bfnrt";
        const char *found = strchr(plain, text_[i]);
        if (text_[i] == 'u') {
            unsigned code = HexCode(text_, i + 1);
            i += 4;
            const bool pair = code >= 0xd800 && code < 0xdc00 && i + 6 < text_.size() &&
                              text_[i + 1] == '\\' && text_[i + 2] == 'u';
            if (pair) {
                code = 0x10000 + ((code - 0xd800) << 10) + (HexCode(text_, i + 3) - 0xdc00);
                i += 6;
            }
            AppendUtf8(out, code);
        } else {
            out += found == nullptr ? text_[i] : "\b\f\n\r\t"[found - plain];
        }
    }
    return out;
}

bool Json::AsIndex(uint64_t &value) const
{
    return kind_ == Kind::SCALAR && ParseUnsigned(text_, value);
}

void Json::Write(std::string &out) const
{
    if (kind_ == Kind::SCALAR || kind_ == Kind::STRING) {
        out += text_;
        return;
    }
    out += IsObject() ? '{' : '[';
    for (size_t i = 0; i < items_.size(); ++i) {
        out += i == 0 ? "" : ",";
        if (IsObject()) {
            out += keys_[i];
            out += ':';
        }
        items_[i].Write(out);
    }
    out += IsObject() ? '}' : ']';
}

} // namespace ait
