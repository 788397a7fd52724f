// A small JSON reader and writer that keeps the order of keys and the text of numbers.
#ifndef AIT_PROBE_JSON_H
#define AIT_PROBE_JSON_H

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ait {

// `text` as a JSON string with quotes.
std::string JsonQuote(const std::string &text);

class Json {
public:
    enum class Kind { SCALAR, STRING, ARRAY, OBJECT };

    static Json Object() { return Json(Kind::OBJECT); }
    static Json Array() { return Json(Kind::ARRAY); }
    static Json String(const std::string &value);

    // False and a reason where `text` is not one JSON value of at most `MAX_DEPTH` levels.
    static bool Parse(const std::string &text, Json &value, std::string &reason);
    static constexpr int MAX_DEPTH = 512;

    Kind kind() const { return kind_; }
    bool IsObject() const { return kind_ == Kind::OBJECT; }
    bool IsArray() const { return kind_ == Kind::ARRAY; }

    // The member of an object, or null.
    const Json *Find(const std::string &key) const;
    // Appends a member, or replaces the value of an existing one in its place.
    void Set(const std::string &key, Json value);
    void Push(Json value) { items_.push_back(std::move(value)); }

    const std::vector<Json> &Items() const { return items_; }
    std::vector<Json> &Items() { return items_; }

    // The text of a string, decoded; "" for anything else.
    std::string AsString() const;
    // A non-negative integer; false for anything else.
    bool AsIndex(uint64_t &value) const;

    // Without blanks; numbers and strings as they were read.
    void Write(std::string &out) const;

private:
    friend class JsonReader;
    explicit Json(Kind kind) : kind_(kind) {}

public:
    Json() = default;

private:
    Kind kind_ = Kind::SCALAR;
    std::string text_ = "null"; // of a scalar or a string, as in the file
    std::vector<std::string> keys_; // as in the file, with quotes
    std::vector<Json> items_;
};

} // namespace ait

#endif
